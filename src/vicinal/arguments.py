"""Arguments of constructors: which there are, values for them from words and files, and objects as
JSON and back.

The convention is scikit-learn's: what a constructor takes, the object keeps under the same name. So
an object is described by its class's name and the current values of those attributes, and rebuilt
by calling that class, found in a list that the caller gives. Nothing in a file can name any other
code.
"""

import dataclasses
import inspect
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from vicinal.errors import ConfigError, unknown

T = TypeVar("T")
_TRUTH = dict.fromkeys(("true", "yes", "1", "on"), True) | dict.fromkeys(
    ("false", "no", "0", "off"), False
)


@dataclass(frozen=True)
class Limits:
    """The numbers that a setting takes, as an interval, in its annotation: ``Annotated[float,
    Limits("[0, 1)")]``."""

    interval: str

    def check(self, value: float, key: str) -> None:
        low, high = self.interval[1:-1].split(", ")
        least = self.interval.startswith("[")
        most = self.interval.endswith("]")
        above = value >= float(low) if least else value > float(low)
        below = value <= float(high) if most else value < float(high)
        if not above or not below:
            words = f"{'at least' if least else 'above'} {low}"
            if high != "inf":
                words += f" and {'at most' if most else 'below'} {high}"
            raise ConfigError(f"{key} must be {words}, got {value}.")


Width = Annotated[
    int, Limits("[1, 8192]")
]  # of layers: a mistaken zero more is an error and not all of the memory
Count = Annotated[int, Limits("[1, inf)")]
Seed = Annotated[
    int, Limits("[0, 9e18]")
]  # what fits in the 64 bits of torch's and numpy's generators
Share = Annotated[float, Limits("[0, 1]")]
Positive = Annotated[float, Limits("(0, inf)")]
NonNegative = Annotated[float, Limits("[0, inf)")]
Finite = Annotated[float, Limits("(-inf, inf)")]
Natural = Annotated[int, Limits("[0, inf)")]


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Settings:
    """Base of a group of settings, a frozen dataclass without saying so: each field is brought to
    what its annotation has, and checked against its limits."""

    slot: ClassVar[str]  # what messages call the group

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in parameters(type(self))}
        for name, value in coerce_arguments(type(self), given, self.slot).items():
            object.__setattr__(self, name, value)


def check_arguments(settings: object) -> None:
    """Raise a ConfigError where an object keeps an argument that is outside of the choices or
    limits of its annotation.

    For classes that are no `Settings`: losses, methods, samplers and estimators, which keep what
    they are given.
    """
    hints = typing.get_type_hints(type(settings).__init__, include_extras=True)
    for name in parameters(type(settings)):
        # Of a subclass whose constructor keeps it only after this one's.
        if not hasattr(settings, name):
            continue
        value = getattr(settings, name)
        hint = hints.get(name)
        key = f"{type(settings).__name__}.{name}"
        parts = {typing.get_origin(part) for part in (hint, *typing.get_args(hint))}
        if parts & {Literal, Annotated}:
            found = coerce(value, hint, key)
            if isinstance(value, str) and not isinstance(found, str):
                raise ConfigError(f"{key} is a number, got the text {value!r}.")


def parameters(kind: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return what a class or function takes, by name."""
    signature = inspect.signature(kind).parameters
    return {
        name: one
        for name, one in signature.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }


def docstring_section(kind: Callable[..., Any], *titles: str) -> dict[str, str]:
    """Return the entries of a section of a docstring, such as ``Args``, by name."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = re.search(rf"^(?:{'|'.join(titles)}):\n((?:[ ]+.*\n?|\n)+)", text, re.M)
    entries = re.findall(
        r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section.group(1) if section else "", re.M
    )
    return {name: " ".join(words.split()) for name, words in entries}


def construct(kind: type[T], arguments: Mapping[str, Any], key: str) -> T:
    """Build an object from arguments that are coerced first; ``key`` is what messages call it."""
    try:
        return kind(**coerce_arguments(kind, arguments, key))
    except TypeError as error:
        raise ConfigError(f"{key}: {kind.__name__} cannot be built: {error}.") from error


def coerce_arguments(
    kind: Callable[..., Any], arguments: Mapping[str, Any], key: str, unlisted: Sequence[str] = ()
) -> dict[str, Any]:
    """Check arguments against a constructor: unknown names are rejected, texts and lists become
    what it takes.

    Args:
        kind: the class, or a function.
        arguments: what it is given.
        key: what messages call it, such as ``loss``.
        unlisted: names that a message about an unknown one does not offer.
    """
    known = parameters(kind)
    built = kind.__init__ if isinstance(kind, type) else kind  # type: ignore[misc]
    hints = typing.get_type_hints(built, include_extras=True)
    found = {}
    for name, value in arguments.items():
        if name not in known:
            offered = [each for each in known if each not in unlisted]
            owner = kind.__qualname__.split(".")[0]
            raise ConfigError(f"{key}.{name}: " + unknown(f"argument of {owner}", name, offered))
        default = known[name].default
        # Where nothing is annotated.
        guessed = type(default) if isinstance(default, (bool, int, float, str)) else Any
        found[name] = coerce(value, hints.get(name, guessed), f"{key}.{name}")
    return found


def coerce(value: Any, annotation: Any, key: str) -> Any:
    """Turn a value into what an annotation has: text from the command line, lists and dictionaries
    from a file.

    >>> coerce("1,2,4", tuple[int, ...], "evaluation.recalls")
    (1, 2, 4)
    >>> coerce("none", int | None, "training.workers") is None
    True
    """
    origin = typing.get_origin(annotation)
    options = typing.get_args(annotation)
    if origin is Annotated:
        value = coerce(value, options[0], key)
        for limits in options[1:]:
            limits.check(value, key)
        return value
    if origin in (typing.Union, types.UnionType):
        if type(None) in options and str(value).lower() == "none":
            return None
        problems = list[ConfigError]()
        for option in options:
            if option is not type(None):
                try:
                    return coerce(value, option, key)
                except ConfigError as error:
                    problems.append(error)
        raise problems[0]
    if origin is Literal:
        by_text = {str(choice): choice for choice in options}
        if str(value) not in by_text:
            raise ConfigError(f"{key}: " + unknown("value", str(value), by_text))
        return by_text[str(value)]
    if origin in (tuple, list, Sequence):
        if isinstance(value, str):
            inner = value.strip("()[] ").removesuffix(",")
            value = [part.strip() for part in inner.split(",")] if inner else []
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{key} is a list, got {value!r}.")
        return tuple(coerce(part, options[0], key) for part in value)
    if annotation is bool:
        if isinstance(value, str) and value.lower() in _TRUTH:
            return _TRUTH[value.lower()]
        if not isinstance(value, bool):
            raise ConfigError(f"{key} is true or false, got {value!r}.")
    elif annotation in (int, float):
        return _number(value, annotation, key)
    elif annotation is str:
        if not isinstance(value, (str, Path)):
            raise ConfigError(f"{key} is a text, got {value!r}.")
        return str(value)
    return value


def _number(value: Any, kind: type, key: str) -> int | float:
    number: int | float | None = None
    if not isinstance(value, bool) and isinstance(value, (str, numbers.Real)):
        with suppress(ValueError, OverflowError):
            number = kind(value)
    if number is None or (kind is int and not isinstance(value, str) and number != value):
        raise ConfigError(
            f"{key} is {'a whole number' if kind is int else 'a number'}, got {value!r}."
        )
    if not math.isfinite(number):
        raise ConfigError(f"{key} is a finite number, got {value!r}.")
    return number


def class_name(kind: type) -> str:
    """Name a class as ``package.module:Class``.

    >>> class_name(Limits)
    'vicinal.arguments:Limits'
    """
    return f"{kind.__module__}:{kind.__qualname__}"


def kept_arguments(value: Any) -> dict[str, Any] | None:
    """Return the constructor's arguments of an object if it keeps all of them as plain values, so
    that its class gives it again; else None.

    >>> kept_arguments(Limits("[0, 1)")), kept_arguments([1, 2])
    ({'interval': '[0, 1)'}, None)
    """
    missing = object()
    names = inspect.signature(type(value)).parameters
    kept = {name: getattr(value, name, missing) for name in names}
    return kept if all(map(_is_plain, kept.values())) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, bool, Path))


def describe(value: Any) -> Any:
    """Return the JSON form of an object that keeps its constructor's arguments as attributes.

    >>> describe(Limits("[0, 1)"))
    {'class': 'Limits', 'interval': '[0, 1)'}
    """
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if _is_plain(value):
        return str(value) if isinstance(value, Path) else value
    if hasattr(value, "to_description"):
        return value.to_description()
    kind = type(value)
    for name in parameters(kind):
        if not hasattr(value, name):
            raise ConfigError(
                f"{kind.__name__} cannot be described: it does not keep its argument {name!r}."
            )
    return {
        "class": kind.__name__,
        **{name: describe(getattr(value, name)) for name in parameters(kind)},
    }


def build(description: Any, allowed: Mapping[str, type]) -> Any:
    """Build the object that a description stands for; a class outside ``allowed`` is an error,
    never looked up.

    >>> build({"class": "system", "command": "true"}, {"Crop": int})
    Traceback (most recent call last):
    vicinal.errors.ConfigError: unknown class 'system'. Known: Crop.
    """
    if isinstance(description, list):
        return tuple(build(item, allowed) for item in description)
    if _is_plain(description):
        return description
    if not isinstance(description, dict) or not isinstance(description.get("class"), str):
        raise ConfigError(
            f"a description must be a JSON object with a 'class', got {description!r:.80}"
        )
    name = description["class"]
    if name not in allowed:
        raise ConfigError(unknown("class", name, allowed))
    kind = allowed[name]
    if hasattr(kind, "from_description"):
        return kind.from_description(description, allowed)
    arguments = {key: build(value, allowed) for key, value in description.items() if key != "class"}
    return construct(kind, arguments, f"in the description of {name}")
