"""The Python in the README and in the documents runs as printed, and their commands are understood."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from vicinal.cli.main import app
from vicinal.training.console import Console
from vicinal.training.explanation import explain
from vicinal.training.listing import packaged_recipes
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import start

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# the loss of adding_a_loss.md runs in the losses' contract suite
DOCUMENTS = [
    "README.md",
    "docs/data.md",
    "docs/evaluation.md",
    "docs/losses.md",
    "docs/anml_deep.md",
    "docs/anml_linear.md",
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_a_document_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what they write
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, document, "exec"), {})  # noqa: S102 - our own text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_on_a_page_are_understood(page):
    """Each ``vicinal ...`` line of a code block, without running it: command, options, recipe and settings."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(), re.S | re.M)
    whole = [block.replace("\\\n", " ") for block in blocks]
    lines = [line for block in whole for line in block.splitlines() if line.startswith("vicinal ")]
    for line in lines:
        command, words = get_command(app), shlex.split(line, comments=True)[1:]
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command, words = command.commands[words[0]], words[1:]
        given = command.make_context(line, words).params.get("arguments") or []
        if given and given[0] in packaged_recipes():
            known = {setting.key.split(".")[0] for setting in explain(find_recipe(given[0]))}
            assert {word.split("=")[0].split(".")[0] for word in given[1:]} <= known, line
    assert lines or page.name != "README.md"


@pytest.mark.parametrize("page", ["adding_a_loss.md", "adding_a_method.md"])
def test_the_recipe_on_a_page_trains(page, tmp_path):
    """The last block of the page, saved as a user would, on a few vectors."""
    recipe, rng = tmp_path / "mine.py", np.random.default_rng(0)
    recipe.write_text(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)[-1])
    labels = np.repeat(np.arange(20), 6)
    features = (rng.normal(size=(20, 8))[labels] + rng.normal(size=(len(labels), 8))).astype(np.float32)
    np.savez(tmp_path / "vectors.npz", features=features, labels=labels)
    built = apply(find_recipe(str(recipe)), [f"data={tmp_path / 'vectors.npz'}", "epochs=1", "restarts=1"])
    run = start(str(recipe), built, tmp_path / "run", command="", console=Console(quiet=True))
    assert run.status["state"] == "finished"


def test_links_between_documents_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
