"""The settings of a recipe as one would type them, with what the docstrings say of them."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vicinal.training.recipe import Recipe


@dataclass(frozen=True)
class Setting:
    """One setting of a recipe.

    Attributes:
        key: as it is written before ``=``.
        value: its default, as it would be written after it; None where the user has to give one.
        words: what its docstring says; may be empty.
    """

    key: str
    value: str | None
    words: str


def explain(kind: type[Recipe]) -> list[Setting]:
    """Every setting of a recipe, its own before those that all recipes have; groups are opened."""
    shared = {field.name for field in dataclasses.fields(Recipe)}
    fields = sorted(dataclasses.fields(kind), key=lambda field: (field.name != "data", field.name in shared))
    said = {**_said(Recipe), **_said(kind)}
    return [setting for field in fields for setting in _opened(field.name, _default(field), said.get(field.name, ""))]


def _opened(key: str, value: Any, words: str) -> Iterator[Setting]:
    """A setting, or those of a group: ``optimisation.learning_rate``."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        yield Setting(key, None if value is dataclasses.MISSING else _typed(value), words)
        return
    said = _said(type(value))
    if key == "data":  # on the command line a path takes its place
        yield Setting(key, str(getattr(value, "path", type(value).__name__.lower())), words)
    for field in dataclasses.fields(value):
        if field.init and not (key == "data" and field.name == "path"):
            yield from _opened(f"{key}.{field.name}", getattr(value, field.name), said.get(field.name, ""))


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _typed(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(_typed, value)) if isinstance(value, tuple) else str(value)


def _said(kind: type) -> dict[str, str]:
    """What a class says of its attributes or arguments, by their names."""
    section = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(kind) or "", re.M)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section.group(1) if section else "", re.M)
    return {name: " ".join(words.replace("``", "`").split()) for name, words in entries}
