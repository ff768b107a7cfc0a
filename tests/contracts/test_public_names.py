"""Every public name is documented on a page of the API reference and has an executed example
there."""

import doctest
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.stem
    for path in (ROOT / "docs" / "api").glob("*.md")
    if path.stem not in ("index", "vicinal")
)


def public(package: str) -> dict[str, object]:
    """The classes and functions that a package exports, by full name."""
    module = importlib.import_module(package)
    named = {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return {
        name: each
        for name, each in named.items()
        if inspect.isclass(each) or inspect.isfunction(each)
    }


NAMES = {
    name: each
    for package in ("vicinal", *(f"vicinal.{part}" for part in PACKAGES))
    for name, each in public(package).items()
}


@cache
def shown() -> set[str]:
    """The full names that Python blocks of the API reference import and use, or reach through their
    package."""
    found = set()
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for module, many, one in re.findall(
                r"from (vicinal[\w.]*) import (?:\(([^)]*)\)|([^\n]*))", block
            ):
                names = many or one
                used = (name.strip() for name in names.split(","))
                found |= {
                    f"{module}.{name}"
                    for name in used
                    if len(re.findall(rf"\b{name}\b", block)) > 1
                }
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
    source = ROOT / "src" / "vicinal"
    exporting = {
        path.parent.name if path.stem == "__init__" else path.stem
        for path in (*source.glob("*/__init__.py"), source / "miners.py")
        if "__all__" in path.read_text(encoding="utf-8")
    }
    assert exporting == set(PACKAGES)


def test_public_names_have_docstrings():
    """A dataclass without a docstring gets its signature for one, which does not count."""
    generated = {
        name for name, each in NAMES.items() if (each.__doc__ or "").startswith(f"{each.__name__}(")
    }
    assert (
        generated | {name for name, each in NAMES.items() if not (each.__doc__ or "").strip()}
        == set()
    )


def test_every_public_name_has_an_executed_example():
    missing = {name for name, each in NAMES.items() if not has_example(name, each)}
    assert missing == set(), "give these an example in their docstring or on their page of docs/api"
