"""Errors: messages say what was wrong, the value received and what to do."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class VicinalError(Exception):
    """Base of all errors that vicinal raises on purpose. The command line prints them without a
    traceback."""


class ConfigError(VicinalError, ValueError):
    """A setting that cannot work; raised before any work starts."""


class DataError(VicinalError, ValueError):
    """Data that cannot be used; the message names the file and, where there is one, the row."""


class RunError(VicinalError):
    """A run directory that is missing, damaged, of another format or in the wrong state."""


class DivergenceError(VicinalError, ArithmeticError):
    """Training diverged: the loss became NaN or infinite."""


def few(names: Sequence[object], most: int = 3, separator: str = ", ") -> str:
    """Return the first of some names, and dots where there are more.

    >>> few(["wren", "robin", "owl"], 2)
    'wren, robin, ...'
    """
    return separator.join([*map(str, names[:most]), *(["..."] if len(names) > most else [])])


def check_known(kind: str, name: str, choices: Collection[str], where: str = "") -> None:
    """Raise a ConfigError for a name that is none of the choices."""
    if name not in choices:
        raise ConfigError(where + unknown(kind, name, choices))


def package(name: str, extra: str) -> Any:
    """Import a package that not everybody has, or raise a ConfigError that names the extra with
    it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"this needs {name}, which cannot be imported: {error}. Run `pip install "
            f"'vicinal[{extra}]'`."
        ) from error


def unknown(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return the message for an unknown name, with the nearest known one.

    >>> unknown("setting", "epoch", ["epochs", "seed"])
    "unknown setting 'epoch'; did you mean 'epochs'? Known: epochs, seed."
    >>> unknown("preset", "x", [])
    "unknown preset 'x'; there are none."
    >>> unknown("row", "x", ["margin", "margin, mined"])
    "unknown row 'x'. Known: 'margin', 'margin, mined'."
    """
    known = sorted(choices)
    if not known:
        return f"unknown {kind} {name!r}; there are none."
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    shown = map(repr, known) if any("," in one for one in known) else known
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(shown)}."
