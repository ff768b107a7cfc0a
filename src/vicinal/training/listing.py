"""What recipe files say of themselves, read without running them or importing anything heavy."""

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Listing:
    """What a recipe file says of itself, read without running it."""

    name: str
    path: Path
    title: str
    cost: str
    expected: str


def packaged_recipes() -> dict[str, Path]:
    """The recipes that come with vicinal, by name."""
    spec = importlib.util.find_spec("vicinal.recipes")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return {path.stem: path for folder in folders for path in sorted(Path(folder).glob("[!_]*.py"))}


def listing(path: Path) -> Listing:
    """Title, cost and expected number from the docstring of a recipe file."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    facts = {
        key.lower(): " ".join(value.split())
        for key, value in re.findall(r"^(Cost|Expected): (.*(?:\n[ \t]+.*)*)", text, re.M)
    }
    title = text.strip().split("\n")[0]
    return Listing(path.stem, path, title, facts.get("cost", ""), facts.get("expected", ""))
