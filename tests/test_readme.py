"""The README's Python runs as printed."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_in_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own text


def test_the_commands_in_the_readme_exist():
    from vicinal.cli.main import app

    named = set(re.findall(r"^vicinal (\w+)", README, re.M))
    known = {command.callback.__name__ for command in app.registered_commands} | {"data"}
    assert named and named <= known
