"""Arguments of constructors: which there are, and values for them from words, files and Python."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from vicinal.errors import ConfigError, unknown

T = TypeVar("T")
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def parameters(kind: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return what a class or function takes, by name."""
    signature = inspect.signature(kind).parameters
    return {name: one for name, one in signature.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}


def defaults(kind: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that a class or function takes and has a default for."""
    return {name: one.default for name, one in parameters(kind).items() if one.default is not one.empty}


def construct(kind: type[T], arguments: Mapping[str, Any], key: str) -> T:
    """Build an object from arguments that are coerced first; ``key`` is what messages call it."""
    try:
        return kind(**coerce_arguments(kind, arguments, key))
    except TypeError as error:
        raise ConfigError(f"{key}: {kind.__name__} cannot be built: {error}.") from error


def coerce_arguments(
    kind: Callable[..., Any], arguments: Mapping[str, Any], key: str, unlisted: Sequence[str] = ()
) -> dict[str, Any]:
    """Check arguments against a constructor: unknown names are rejected, texts and lists become what it takes.

    Args:
        kind: the class, or a function.
        arguments: what it is given.
        key: what messages call it, such as ``loss``.
        unlisted: names that a message about an unknown one does not offer.
    """
    known = parameters(kind)
    hints = typing.get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    found = {}
    for name, value in arguments.items():
        if name not in known:
            offered = [each for each in known if each not in unlisted]
            owner = kind.__qualname__.split(".")[0]
            raise ConfigError(f"{key}.{name}: " + unknown(f"argument of {owner}", name, offered))
        default = known[name].default
        guessed = type(default) if isinstance(default, (bool, int, float, str)) else Any  # where nothing is annotated
        found[name] = coerce(value, hints.get(name, guessed), f"{key}.{name}")
    return found


def coerce(value: Any, annotation: Any, key: str) -> Any:
    """Turn a value into what an annotation has: text from the command line, lists and dictionaries from a file.

    >>> coerce("1,2,4", tuple[int, ...], "evaluation.recalls")
    (1, 2, 4)
    >>> coerce("none", int | None, "training.workers") is None
    True
    """
    origin, options = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _coerce_union(value, options, key)
    if origin is Literal:
        by_text = {str(choice): choice for choice in options}
        if str(value) not in by_text:
            raise ConfigError(f"{key}: " + unknown("value", str(value), by_text))
        return by_text[str(value)]
    if origin in (tuple, list, Sequence):
        parts = [p.strip() for p in value.strip("()[]").split(",") if p.strip()] if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise ConfigError(f"{key} is a list, got {value!r}.")
        return tuple(coerce(part, options[0], key) for part in parts)
    if annotation is bool:
        if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
            return value.lower() in _TRUE
        if not isinstance(value, bool):
            raise ConfigError(f"{key} is true or false, got {value!r}.")
    elif annotation in (int, float):
        return _number(value, annotation, key)
    elif annotation is str and not isinstance(value, str):
        raise ConfigError(f"{key} is a text, got {value!r}.")
    elif dataclasses.is_dataclass(annotation) and isinstance(annotation, type) and not isinstance(value, annotation):
        if isinstance(value, Mapping):
            return construct(annotation, value, key)
        names = ", ".join(f"{key}.{item.name}" for item in dataclasses.fields(annotation))
        raise ConfigError(f"{key} is a group of settings; set one of them: {names}.")
    return value


def _coerce_union(value: Any, options: Sequence[Any], key: str) -> Any:
    if (value is None or (isinstance(value, str) and value.lower() == "none")) and type(None) in options:
        return None
    problems = []
    for option in options:
        if option is not type(None):
            try:
                return coerce(value, option, key)
            except ConfigError as error:
                problems.append(error)
    raise problems[0]


def _number(value: Any, kind: type, key: str) -> int | float:
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        number: int | float = kind(value)
        if kind is int and not isinstance(value, str) and number != value:
            raise ValueError
    except (ValueError, OverflowError):
        raise ConfigError(f"{key} is {'a whole number' if kind is int else 'a number'}, got {value!r}.") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ConfigError(f"{key} is a finite number, got {value!r}.")
    return number
