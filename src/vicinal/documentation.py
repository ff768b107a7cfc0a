"""What docstrings say of classes, for the command line: first lines, arguments and their
meaning."""

import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from vicinal import config
from vicinal.arguments import docstring_section, parameters
from vicinal.data import ImageTransform
from vicinal.errors import ConfigError, unknown
from vicinal.linear import ESTIMATORS
from vicinal.miners import MINERS
from vicinal.models import BACKBONES, ModelConfig
from vicinal.models.config import constructor_of

KINDS: dict[str, Mapping[str, Any]] = {  # what `vicinal list` knows
    "losses": config.REGISTRIES["loss"],
    "methods": config.REGISTRIES["method"],
    "models": {**BACKBONES, **ESTIMATORS},
    "samplers": config.REGISTRIES["sampler"],
    "miners": MINERS,
    "datasets": config.REGISTRIES["data"],
    "presets": config.presets(),
}
_ONE_CLASS: dict[str, type] = {
    **config.ONE_CLASS,
    "transform": ImageTransform,
}  # slots that take no name


class Explanation(NamedTuple):
    """A class as the command line shows it; settings are key, default and meaning."""

    title: str
    text: str
    settings: list[tuple[str, str, str]]


def summaries(kind: str) -> dict[str, str]:
    """Return name and first sentence of everything of a kind."""
    if kind not in KINDS:
        raise ConfigError(unknown("kind", kind, KINDS))
    if kind == "presets":
        return {name: config.from_toml(path).get("title", "") for name, path in KINDS[kind].items()}
    found = {
        name: " ".join(_body(part).split("\n\n")[0].split()) for name, part in KINDS[kind].items()
    }
    if kind == "models":
        found["timm:NAME"] = "Any network of timm."
        found["torchvision:NAME"] = "Any classification network of torchvision."
    return found


def explanation(what: str) -> Explanation:
    """Explain ``loss=triplet``, a slot without names (``training``), or a preset by its name."""
    slot, equals, name = what.partition("=")
    if not equals and slot in config.presets():
        return Explanation(slot, _preset_text(slot), [])
    if slot not in config.SLOTS:
        raise ConfigError(unknown("slot or preset", slot, (*config.SLOTS, *config.presets())))
    if slot == "model":
        kind = constructor_of(name) if name else ModelConfig  # raises with the nearest name
        rows = _settings(slot, ModelConfig, ("name", *config.DERIVED[slot]))
        if name:
            own = parameters(kind).keys() - ModelConfig.parameters(name).keys()
            rows = _settings(slot, kind, own) + rows
        return Explanation(what, _body(kind), rows)
    registry = config.REGISTRIES.get(slot, {})
    found = _ONE_CLASS.get(slot) or registry.get(name)
    if found is None:
        known = ", ".join(registry)
        raise ConfigError(
            unknown(slot, name, registry) if name else f"name one of them: {slot}=NAME of {known}."
        )
    return Explanation(what, _body(found), _settings(slot, found, config.DERIVED.get(slot, ())))


def _preset_text(name: str) -> str:
    """Return a preset as its file has it, and below it the one that it begins with."""
    path = config.presets()[name]
    base = config.from_toml(path).get("preset")
    text = path.read_text(encoding="utf-8")
    return text if base is None else f"{text}\n# preset {base}\n{_preset_text(base)}"


def _settings(slot: str, kind: type, leave_out: Collection[str] = ()) -> list[tuple[str, str, str]]:
    """Return key, default and meaning of what a class takes."""
    meaning = arguments_of(kind)
    known = parameters(kind)
    rows = []
    # In the order of the docstring.
    for name in sorted(known.keys() - set(leave_out), key=[*meaning, *known].index):
        default = known[name].default
        shown = "(follows from the data)" if default is inspect.Parameter.empty else _typed(default)
        rows.append((f"{slot}.{name}", shown, meaning.get(name, "")))
    return rows


def _body(kind: type) -> str:
    """Return a docstring up to its arguments and examples."""
    text = re.split(r"^(?:Args|Attributes|Returns|>>>)", inspect.getdoc(kind) or "", flags=re.M)[0]
    return text.strip().replace("``", "`")


def arguments_of(kind: type) -> dict[str, str]:
    """Return what a docstring says of each argument; what it leaves out, as that of a base class
    says it."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        for name, words in docstring_section(base, "Attributes", "Args").items():
            if base is kind or name in parameters(kind):
                found.setdefault(name, words.replace("``", "`"))
    return found


def _typed(value: Any) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(_typed, value))
    return str(value) if isinstance(value, (str, int, float)) else type(value).__name__
