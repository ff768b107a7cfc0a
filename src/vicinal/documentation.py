"""What docstrings say of classes, for the command line: first lines, arguments and their meaning."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vicinal import config
from vicinal.arguments import parameters
from vicinal.data import DATASETS_BY_NAME, ImageTransform
from vicinal.errors import ConfigError, unknown
from vicinal.losses import LOSSES
from vicinal.methods import METHODS
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.miners import MINERS
from vicinal.models import BACKBONES, ModelConfig
from vicinal.models.config import backbone_class
from vicinal.samplers import SAMPLERS

REGISTRIES: dict[str, Mapping[str, Any]] = {
    "losses": LOSSES,
    "methods": METHODS,
    "models": BACKBONES,
    "samplers": SAMPLERS,
    "miners": MINERS,
    "datasets": DATASETS_BY_NAME,
}
NAMED = {"loss": "losses", "method": "methods", "sampler": "samplers", "data": "datasets"}  # slots that take a name
UNNAMED: dict[str, type] = {
    "training": config.Training,
    "evaluation": config.Evaluation,
    "optimizer": OptimizerConfig,
    "transform": ImageTransform,
}


@dataclass(frozen=True)
class Explanation:
    """A class as the command line shows it; arguments are key, default and meaning."""

    title: str
    text: str
    arguments: tuple[tuple[str, str, str], ...]


def summaries(kind: str) -> dict[str, str]:
    """Name and first sentence of everything of a kind."""
    if kind == "presets":
        return {name: str(config.from_toml(path).get("title", "")) for name, path in config.presets().items()}
    found = {name: first_line(part) for name, part in REGISTRIES[kind].items()}
    if kind == "models":
        found |= {"timm:NAME": "Any network of timm.", "torchvision:NAME": "Any classification network of torchvision."}
    return found


def explanation(what: str) -> Explanation:
    """``loss=triplet``, a slot without names (``training``), or a preset's name."""
    slot, equals, name = what.partition("=")
    if not equals and slot in config.presets():
        return _preset(slot)
    if slot not in config.SLOTS:
        raise ConfigError(unknown("slot or preset", slot, (*config.SLOTS, *config.presets())))
    if slot == "model":
        return _model(name)
    if slot in UNNAMED:
        return _class(slot, UNNAMED[slot], slot)
    registry = REGISTRIES[NAMED[slot]]
    if name not in registry:
        known = ", ".join(registry)
        raise ConfigError(unknown(slot, name, registry) if name else f"name one of them: {slot}=NAME of {known}.")
    return _class(f"{slot}={name}", registry[name], slot)


def _class(title: str, kind: type, slot: str) -> Explanation:
    meaning = arguments_of(kind)
    rows = []
    takes = getattr(kind, "fitted", kind) if slot == "sampler" else kind
    known = parameters(takes)
    for name in sorted(known, key=[*meaning, *known].index):  # as the docstring has them
        parameter = known[name]
        default = "(follows from the data)" if parameter.default is parameter.empty else typed(parameter.default)
        if name not in config.DERIVED.get(slot, ()):
            rows.append((f"{slot}.{name}", default, meaning.get(name, "")))
    return Explanation(title, body(kind), tuple(rows))


def _model(name: str) -> Explanation:
    shared = _class("model", ModelConfig, "model")
    rows = [row for row in shared.arguments if row[0] not in ("model.name", "model.arguments", "model.module")]
    if not name:
        return Explanation("model", shared.text, tuple(rows))
    kind = backbone_class(name)  # raises with the nearest name if there is none
    meaning = arguments_of(kind)
    own = [
        (f"model.{key}", typed(parameter.default), meaning.get(key, ""))
        for key, parameter in ModelConfig.parameters(name).items()
        if parameter.default is not parameter.empty
    ]
    return Explanation(f"model={name}", body(kind), (*own, *rows))


def _preset(name: str) -> Explanation:
    layer = config.preset(name)
    text = "\n".join(f"{key}: {layer[key]}" for key in ("title", "cost", "expected") if key in layer)
    rows = []
    for slot in config.SLOTS:
        value = layer.get(slot, {})
        for key, item in value.items() if isinstance(value, dict) else [("name", value)]:
            rows.append((slot if key == "name" else f"{slot}.{key}", typed(item), ""))
    return Explanation(name, text, tuple(rows))


def first_line(part: Any) -> str:
    return (inspect.getdoc(part) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")


def body(kind: Any) -> str:
    """A docstring up to its arguments and examples."""
    text = re.split(r"^(?:Args|Attributes|Returns|>>>)", inspect.getdoc(kind) or "", flags=re.M)[0]
    return text.strip().replace("``", "`")


def arguments_of(kind: Any) -> dict[str, str]:
    """What a docstring says of each argument."""
    section = re.search(r"^(?:Attributes|Args):\n((?:[ ]+.*\n?|\n)+)", inspect.getdoc(kind) or "", re.M)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section.group(1) if section else "", re.M)
    return {name: " ".join(words.replace("``", "`").split()) for name, words in entries}


def typed(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(typed, value))
    return str(value) if isinstance(value, (str, int, float)) else type(value).__name__
