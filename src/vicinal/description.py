"""Objects as JSON and back, through constructors from an allowed list.

The convention is scikit-learn's: what a constructor takes, the object keeps under the same name. So an
object is described by its class's name and the current values of those attributes, and rebuilt by calling
that class, found in a list that the caller gives. Nothing in a file can name any other code.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.errors import ConfigError, unknown

_PLAIN = (str, int, float, bool, type(None))


def describe(value: Any) -> Any:
    """Return the JSON form of an object that keeps its constructor's arguments as attributes.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Crop:
    ...     size: int
    ...     mirror: bool = False
    >>> describe(Crop(24))
    {'class': 'Crop', 'size': 24, 'mirror': False}
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if hasattr(value, "to_description"):
        return value.to_description()
    kind = type(value)
    parts: dict[str, Any] = {"class": kind.__name__}
    for name in _parameters(kind):
        if not hasattr(value, name):
            raise ConfigError(f"{kind.__name__} cannot be described: it does not keep its argument {name!r}.")
        parts[name] = describe(getattr(value, name))
    return parts


def build(description: Any, allowed: Mapping[str, type]) -> Any:
    """Build the object that a description stands for; a class outside ``allowed`` is an error, never looked up.

    >>> build({"class": "system", "command": "true"}, {"Crop": int})
    Traceback (most recent call last):
    vicinal.errors.ConfigError: unknown class 'system'. Known: Crop.
    """
    if isinstance(description, _PLAIN):
        return description
    if isinstance(description, list):
        return tuple(build(item, allowed) for item in description)
    if not isinstance(description, dict) or not isinstance(description.get("class"), str):
        raise ConfigError(f"a description must be a JSON object with a 'class', got {description!r:.80}")
    name = description["class"]
    if name not in allowed:
        raise ConfigError(unknown("class", name, allowed))
    kind = allowed[name]
    if hasattr(kind, "from_description"):
        return kind.from_description(description, allowed)
    known = _parameters(kind)
    for key in description:
        if key != "class" and key not in known:
            raise ConfigError(f"in the description of {name}: " + unknown("argument", key, known))
    arguments = {key: build(value, allowed) for key, value in description.items() if key != "class"}
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{name} cannot be built from its description: {error}") from error


def _parameters(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name not in ("args", "kwargs")]
