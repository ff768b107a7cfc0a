"""``key=value`` overrides of a recipe, typed by the annotations of its fields."""

import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from vicinal.data import open_path
from vicinal.data.records import Dataset
from vicinal.errors import ConfigError, unknown
from vicinal.training.recipe import Recipe

R = TypeVar("R", bound=Recipe)


class _Part(NamedTuple):
    """``key=text``, of which ``path`` is left from the group on that is looked at."""

    path: list[str]
    text: str
    key: str


def apply(kind: type[R], overrides: Sequence[str]) -> R:
    """A recipe with some settings changed; ``a.b=c`` reaches into a setting that has settings of its own.

    Settings of one group change together, so that their order does not matter where only some combinations are allowed.
    """
    changes: dict[str, Any] = {}
    within: dict[str, list[_Part]] = {}
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"an override is written key=value, but {override!r} came.")
        first, *rest = key.split(".")
        if first not in fields:
            raise ConfigError(unknown("setting", first, fields))
        if rest:
            within.setdefault(first, []).append(_Part(rest, text, key))
        else:
            changes[first] = parse(text, typing.get_type_hints(kind)[first], key)
    for first, parts in within.items():
        changes[first] = _replace(changes[first] if first in changes else _default(fields[first]), parts)
    missing = [f.name for f in dataclasses.fields(kind) if f.name not in changes and not _has_default(f)]
    if missing:
        raise ConfigError(f"{kind.__name__} has no default for {', '.join(missing)}. Give {missing[0]}=...")
    return kind(**changes)


def parse(text: str, annotation: Any, key: str) -> Any:
    """The value that ``text`` stands for under an annotation.

    >>> parse("1,2,4", tuple[int, ...], "recalls")
    (1, 2, 4)
    >>> parse("none", int | None, "workers") is None
    True
    """
    if annotation is Dataset:
        return open_path(text)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        if text.lower() == "none" and type(None) in arguments:
            return None
        return parse(text, next(a for a in arguments if a is not type(None)), key)
    if origin is Literal:
        by_text = {str(choice): choice for choice in arguments}
        if text not in by_text:
            raise ConfigError(f"for {key}: " + unknown("value", text, by_text))
        return by_text[text]
    if origin is tuple:
        parts = [part for part in text.strip("()[]").split(",") if part.strip()]
        return tuple(parse(part.strip(), arguments[0], key) for part in parts)
    if annotation is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ConfigError(f"{key} is true or false, but {text!r} came.")
        return text.lower() in ("true", "yes", "1")
    if annotation in (int, float):
        try:
            value = annotation(text)
        except ValueError:
            raise ConfigError(f"{key} is a number ({annotation.__name__}), but {text!r} came.") from None
        return value
    if annotation is str:
        return text
    if dataclasses.is_dataclass(annotation):
        names = ", ".join(f"{key}.{field.name}" for field in dataclasses.fields(annotation))
        raise ConfigError(f"{key} is a group of settings; set one of them: {names}.")
    raise ConfigError(f"{key} cannot be set on the command line; write it into a recipe file of your own.")


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _default(field: "dataclasses.Field[Any]") -> Any:
    if not _has_default(field):
        raise ConfigError(f"{field.name} has no default; give {field.name}=..., too.")
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _replace(value: Any, parts: Sequence[_Part]) -> Any:
    """A group with some of its settings changed, all at once."""
    changes: dict[str, Any] = {}
    within: dict[str, list[_Part]] = {}
    for (first, *rest), text, key in parts:
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            raise ConfigError(f"{key}: {type(value).__name__} has no settings of its own.")
        fields = [field.name for field in dataclasses.fields(value)]
        if first not in fields:
            raise ConfigError(f"for {key}: " + unknown("setting", first, fields))
        if rest:
            within.setdefault(first, []).append(_Part(rest, text, key))
        else:
            changes[first] = parse(text, typing.get_type_hints(type(value))[first], key)
    for first, inner in within.items():
        changes[first] = _replace(changes.get(first, getattr(value, first)), inner)
    return dataclasses.replace(value, **changes)
