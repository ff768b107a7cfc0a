"""What classes say of themselves, for the command line: first lines, arguments and their meaning, from docstrings.

``python -m vicinal.documentation docs/compose.md`` renews the tables of a page that are generated from the code.
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal import config
from vicinal.arguments import parameters
from vicinal.data import DATASETS_BY_NAME, ImageTransform
from vicinal.errors import ConfigError, unknown
from vicinal.losses import LOSSES
from vicinal.methods import METHODS, combination
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.mining import MINERS
from vicinal.models import BACKBONES, ModelConfig
from vicinal.models.config import backbone_class
from vicinal.sampling import SAMPLERS


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
    registries: dict[str, Mapping[str, Any]] = {
        "losses": LOSSES,
        "methods": METHODS,
        "models": BACKBONES,
        "samplers": SAMPLERS,
        "miners": MINERS,
        "datasets": DATASETS_BY_NAME,
    }
    found = {name: first_line(part) for name, part in registries[kind].items()}
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
    fixed: dict[str, type] = {
        "training": config.Training,
        "evaluation": config.Evaluation,
        "optimizer": OptimizerConfig,
        "transform": ImageTransform,
    }
    named: dict[str, Mapping[str, Any]] = {
        "loss": LOSSES,
        "method": METHODS,
        "sampler": SAMPLERS,
        "data": DATASETS_BY_NAME,
    }
    if slot not in named:
        return _class(slot, fixed[slot], slot)
    registry = named[slot]
    if name not in registry:
        known = ", ".join(registry)
        raise ConfigError(unknown(slot, name, registry) if name else f"name one of them: {slot}=NAME of {known}.")
    return _class(f"{slot}={name}", registry[name], slot)


def _class(title: str, kind: type, slot: str) -> Explanation:
    meaning = arguments_of(kind)
    rows = []
    takes = getattr(kind, "fitted", kind) if slot == "sampler" else kind
    for name, parameter in parameters(takes).items():
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


# -- generated parts of pages ---------------------------------------------------------------------

MATRIX = ("plain", "hdml", "loop", "ala", "htl", "cross_batch_memory")  # the columns of `combination_matrix`


def combination_matrix() -> str:
    """Which method trains which loss with default arguments, as Markdown: its sampler, or a note why not."""
    methods = [METHODS[name]() for name in MATRIX]
    notes: dict[str, int] = {}
    rows = []
    for name, loss in LOSSES.items():
        cells = [f"`{name}`"]
        for method in methods:
            reason = combination(method, name)
            if reason is None:
                cells.append(method.sampler_for(loss))
            else:
                general = reason.replace(f", got {loss.__name__}", "").replace(loss.__name__, "this loss")
                number = notes.setdefault(general[0].upper() + general[1:], len(notes) + 1)
                cells.append(f"no ({number})")
        rows.append(cells)
    table = _markdown(["loss", *(f"`{name}`" for name in MATRIX)], rows)
    return "\n".join([table, "", *(f"{number}. {reason}" for reason, number in notes.items())])


def preset_table() -> str:
    """The presets with their cost, as Markdown."""
    layers = {name: config.preset(name) for name in config.presets()}
    return _markdown(
        ["preset", "what it trains", "cost"],
        [[f"`{name}`", layer["title"], layer["cost"]] for name, layer in layers.items()],
    )


def recipe_table() -> str:
    """The recipes of version 0.1 and the commands that replace them, as Markdown."""
    former = config.FORMER_RECIPES.items()
    return _markdown(
        ["recipe of 0.1", "command now"], [[f"`{name}`", f"`vicinal train {words}`"] for name, words in former]
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


GENERATED: dict[str, Callable[[], str]] = {
    "combinations": combination_matrix,
    "presets": preset_table,
    "recipes": recipe_table,
}


def renewed(page: str) -> str:
    """A page whose parts between ``<!-- generated:NAME:start -->`` and ``end`` are what the code gives now."""
    for name, make in GENERATED.items():
        start, end = f"<!-- generated:{name}:start -->\n", f"<!-- generated:{name}:end -->"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        if found:
            page = f"{before}{start}{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
