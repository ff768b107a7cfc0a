"""The Python in the README and in the documents runs as printed, and their commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# adding_a_loss.md runs in the losses' contract suite
DOCUMENTS = ["README.md", "docs/evaluation.md", "docs/losses.md", "docs/anml_linear.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_a_document_runs(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, document, "exec"), {})  # noqa: S102 - our own text


def test_the_commands_in_the_readme_exist():
    from vicinal.cli.main import app

    named = set(re.findall(r"^vicinal (\w+)", README, re.M))
    known = {command.callback.__name__ for command in app.registered_commands} | {"data"}
    assert named and named <= known


def test_links_between_documents_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
