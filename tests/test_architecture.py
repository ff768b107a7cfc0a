"""The dependency direction, executable: a part imports only from layers before its own; siblings
are strangers."""

import ast
from functools import cache
from itertools import takewhile
from pathlib import Path
from runpy import run_path

import pytest

SRC = Path(__file__).parents[1] / "src/vicinal"
LAYERS = [
    {"errors"},
    {"remote"},
    {"files", "arguments", "geometry", "tuples", "parallel"},
    {"run_directory", "figures", "distances", "linear"},
    {"reports"},  # reports read run directories, never live objects
    {"losses", "samplers", "models", "data"},
    {"evaluation", "miners"},
    {"compat"},
    {"methods", "retrieval"},
    {"config"},
    {"training", "documentation"},
    {"bench"},
    {"api"},
    {"cli"},
    {"__init__", "__main__"},  # exports lazily
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
NO_ROOM = {
    "utils",
    "common",
    "misc",
    "helpers",
    "core",
}  # rooms without a noun, where direction dies


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree):
    """The parts of vicinal that a module imports, wherever in the file the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import: write the full path"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("vicinal."))


def test_the_page_on_architecture_shows_these_layers():
    page = (SRC.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = page.split("```")[1].strip().splitlines()
    assert [set(takewhile(DEPTH.__contains__, line.split())) for line in lines] == LAYERS[:-1]


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path):
    parts = path.relative_to(SRC).with_suffix("").parts
    here = parts[0]
    assert len(parts) <= (3 if here in ("methods", "retrieval") else 2), (
        "a third level is for one paper, one folder"
    )
    assert not NO_ROOM & set(parts), (
        "a helper lives beside its caller, in the layer whose noun it is"
    )
    for there in set(imports(parsed(path))) - {here}:
        assert there in DEPTH, f"{there} has no layer: give it one in LAYERS"
        assert DEPTH[there] < DEPTH[here], f"{here} may not import {there}"


def test_retrieval_knows_neither_losses_nor_training():
    """Whoever searches or serves a finished run needs none of what made it."""
    found = {part for path in (SRC / "retrieval").rglob("*.py") for part in imports(parsed(path))}
    assert not found & {"losses", "miners", "samplers", "methods", "training", "config", "bench"}


def test_no_files_import_each_other_in_a_circle():
    """Within a package as well, and inside functions."""
    assert run_path(str(SRC.parents[1] / "benchmarks" / "structure.py"))["circle"]() == []


def test_no_loss_is_told_by_its_class_outside_losses():
    """Methods ask a loss for what it can do, so that a loss of the user's own can do it, too."""
    found = [
        f"{path.relative_to(SRC)}:{node.lineno}"
        for path in SRC.rglob("*.py")
        if path.relative_to(SRC).parts[0] not in ("losses", "compat")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if any(isinstance(n, ast.Name) and n.id.endswith("Loss") for n in ast.walk(node.args[1]))
    ]
    assert not found


def test_source_raises_instead_of_asserting():
    found = [
        p for p in SRC.rglob("*.py") if any(isinstance(n, ast.Assert) for n in ast.walk(parsed(p)))
    ]
    assert not found, f"`assert` vanishes under -O; raise an error of vicinal.errors in {found}"
