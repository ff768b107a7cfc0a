"""Every public name is documented, on a page of the API reference, and has an executed example unless it is listed."""

import doctest
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.stem for path in (ROOT / "docs" / "api").glob("*.md") if path.stem not in ("index", "vicinal"))
# Public names that no docstring and no page shows in use yet. Names leave this list; none enters.
WITHOUT_EXAMPLE = [
    "BNInception",
    "Backbone",
    "BatchSampler",
    "Cars196",
    "CheckReport",
    "CrossView",
    "Dataset",
    "FeatureTransform",
    "Glyphs",
    "GoogLeNet",
    "InShop",
    "Inseparable",
    "LoadReport",
    "MahalanobisTransformer",
    "MinedPairs",
    "Omniglot",
    "OmniglotPairs",
    "OrientationHead",
    "OwnTransform",
    "Parts",
    "Preprocessing",
    "ProxyLoss",
    "Row",
    "Search",
    "SmartMiner",
    "Source",
    "StanfordOnlineProducts",
    "Table",
    "TimmBackbone",
    "TorchvisionBackbone",
    "Trial",
    "TwoStreamEmbedder",
    "approximate_neighbors",
    "layer",
    "layer_groups",
    "load",
    "load_all",
    "load_unchecked",
    "load_weights",
    "neighbor_accuracies",
    "own_data",
    "own_description",
    "retrieval_scores",
    "trusted",
    "write_report",
]


def public(package: str) -> dict[str, object]:
    """The classes and functions that a package exports, by full name."""
    module = importlib.import_module(package)
    named = {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return {name: each for name, each in named.items() if inspect.isclass(each) or inspect.isfunction(each)}


NAMES = {
    name: each
    for package in ("vicinal", *(f"vicinal.{part}" for part in PACKAGES))
    for name, each in public(package).items()
}


@cache
def shown() -> set[str]:
    """The full names that Python blocks of the documentation import and use, or reach through their package."""
    found = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for module, many, one in re.findall(r"from (vicinal[\w.]*) import (?:\(([^)]*)\)|([^\n]*))", block):
                names = many or one
                used = (name.strip() for name in names.split(","))
                found |= {f"{module}.{name}" for name in used if len(re.findall(rf"\b{name}\b", block)) > 1}
            found |= set(re.findall(r"\bvicinal(?:\.\w+)+", block))
    return found


def has_example(name: str, each: object) -> bool:
    if name in shown() or f"{each.__module__}.{each.__qualname__}" in shown():
        return True
    documented = (
        [each, *(member for member in vars(each).values() if inspect.isfunction(member))]
        if inspect.isclass(each)
        else [each]
    )
    return any(
        example.options.get(doctest.SKIP) is not True
        for one in documented
        for example in doctest.DocTestParser().get_examples(one.__doc__ or "")
    )


def test_every_package_with_public_names_has_a_page():
    exporting = {
        path.parent.name
        for path in (ROOT / "src" / "vicinal").glob("*/__init__.py")
        if "__all__" in path.read_text(encoding="utf-8")
    }
    assert exporting == set(PACKAGES)


def test_public_names_have_docstrings():
    """A dataclass without a docstring gets its signature for one, which does not count."""
    generated = {name for name, each in NAMES.items() if (each.__doc__ or "").startswith(f"{each.__name__}(")}
    assert generated | {name for name, each in NAMES.items() if not (each.__doc__ or "").strip()} == set()


def test_names_without_an_executed_example_are_listed():
    missing = {name for name, each in NAMES.items() if not has_example(name, each)}
    listed = {name for name in NAMES if name.rpartition(".")[2] in WITHOUT_EXAMPLE}
    assert missing - listed == set(), "give these an example in their docstring or on a page"
    assert {name.rpartition(".")[2] for name in missing} == {name.rpartition(".")[2] for name in listed}, (
        "some names on the list have an example: take them off"
    )
