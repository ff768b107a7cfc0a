"""Arguments of constructors: which there are, and values for them from words, files and Python."""

import dataclasses
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from vicinal.errors import ConfigError, unknown

T = TypeVar("T")
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number that is annotated with it may be: finite, and within these bounds.

    Attributes:
        low: the least that is allowed.
        high: the most that is allowed.
        open: whether ``low`` itself is excluded.
    """

    low: float = -math.inf
    high: float = math.inf
    open: bool = False

    def problem(self, value: object, *, whole: bool) -> str | None:
        """Return the end of a sentence that says what a value must be, or None where it is that."""
        if not isinstance(value, bool) and isinstance(value, numbers.Integral if whole else numbers.Real):
            number = float(value)
            above = self.low < number if self.open else self.low <= number
            if math.isfinite(number) and above and number <= self.high:
                return None
        what = "a whole number" if whole else "a finite number"
        bounds = [f"above {self.low:g}" if self.open else f"at least {self.low:g}"] if self.low > -math.inf else []
        bounds += [f"at most {self.high:g}"] if self.high < math.inf else []
        return f" must be {what}{' ' * bool(bounds)}{' and '.join(bounds)}, got {value!r}."


Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(0, open=True)]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Count = Annotated[int, Range(1)]
Index = Annotated[int, Range(0)]


def check_arguments(settings: object, *, prefix: str = "") -> None:
    """Raise a ConfigError where an object keeps an argument that its constructor's annotations do not allow.

    Checked are the choices of a ``Literal`` and the bounds of a `Range`.

    Args:
        settings: an object that keeps its arguments under their names.
        prefix: how a user types what precedes the name of an argument, such as ``optimizer.``.
    """
    hints = typing.get_type_hints(type(settings).__init__, include_extras=True)
    for name in parameters(type(settings)):
        value, hint = getattr(settings, name), hints.get(name, Any)
        options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        problems = [_problem(value, option, name) for option in options]
        if None not in problems:
            problem = next(each for each in problems if each)
            raise ConfigError(f"{prefix or type(settings).__name__ + '.'}{name}{problem}")


def _problem(value: object, option: Any, name: str) -> str | None:
    """Return what is wrong with a value for one annotation, "" where only another one could say, None if nothing is."""
    if option is type(None):
        return None if value is None else ""
    if typing.get_origin(option) is Literal:
        choices = typing.get_args(option)
        return None if value in choices else ": " + unknown(name, str(value), choices)
    if typing.get_origin(option) is Annotated:
        base, *marks = typing.get_args(option)
        ranges = [mark for mark in marks if isinstance(mark, Range)]
        return next((mark.problem(value, whole=base is int) for mark in ranges), None)
    return None


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
