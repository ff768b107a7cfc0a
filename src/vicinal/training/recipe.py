"""Recipes: Python files whose settings are typed fields and whose ``build`` makes the method.

A recipe file holds one final subclass of ``Recipe`` and a docstring with command, cost and the number to expect. It
imports the classes it uses, so there is no registry. Any field can be overridden on the command line
(``epochs=5 data.per_class=30``); an unknown key or a value of another type is refused.
"""

import dataclasses
import importlib
import importlib.util
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from vicinal.data import DATASETS, TRANSFORMS
from vicinal.data.records import Dataset, Records
from vicinal.data.residency import Residency
from vicinal.data.transforms import Transform
from vicinal.description import build, describe
from vicinal.errors import ConfigError, unknown
from vicinal.methods.method import Method
from vicinal.training.listing import packaged_recipes


@dataclass(frozen=True)
class Start:
    """How the head begins.

    Attributes:
        head: drawn at ``"random"``; or as the ``"principal"`` components of the training features, which over a
            pre-trained backbone begins where the backbone is; or as those of features in which images of one class
            differ alike in all directions, ``"discriminant"`` (``models/principal.py``). Fewer pictures than dimensions
            leave the last directions to chance.
        length: mean length of the embeddings then; a loss over inner products sees it as a temperature.
    """

    head: Literal["random", "principal", "discriminant"] = "random"
    length: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """The settings that every recipe has; its own come on top.

    Attributes:
        data: where the records come from; on the command line a path (``data=birds/``) opens what lies there.
        transform: preprocessing of the training inputs; its ``evaluation()`` twin is used for all else.
        seed: initial weights, batches, augmentation and the held-out classes follow from it.
        start: how the head begins.
        epochs: how often ``method.batches`` is asked.
        validation: share of the training classes held out to select the model; 0 selects the last one.
        evaluate_every: epochs between two looks at the validation classes.
        recalls: the K of Recall@K in the result table.
        restarts: k-means restarts behind NMI, AMI and F1.
        artefacts: whether the report gets retrievals, map and confusions, and rows of the raw inputs and the untrained
            network; a table of many runs does without.
        device: ``auto`` takes the GPU where there is one.
        precision: of the backbone in training; ``auto`` is bfloat16 on a GPU that has it and float32 elsewhere. What is
            measured and deployed is float32.
        compile: whether the backbone is compiled for training on a GPU. ``auto`` does so where the run is long enough
            to win back the time that this takes.
        record: whether steps are recorded on a GPU and replayed, where the method can (``methods.recording``).
        resident: whether images stay decoded on the device; ``auto`` keeps them if they fit, see ``data/residency.py``.
        workers: processes that read images; None is none for arrays in memory and one per core for files.
        batch_size: rows at a time when embedding without training.
        skip_corrupt: replace unreadable images by others of their class, and count them, instead of stopping.
        checkpoint_seconds: a kill loses at most about this much work.
    """

    data: Dataset
    transform: Transform
    seed: int = 0
    start: Start = Start()
    epochs: int = 10
    validation: float = 0.2
    evaluate_every: int = 1
    recalls: tuple[int, ...] = (1, 2, 4, 8)
    restarts: int = 3
    artefacts: bool = True
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    record: Literal["auto", "off"] = "auto"
    resident: Residency = "auto"
    workers: int | None = None
    batch_size: int = 256
    skip_corrupt: bool = False
    checkpoint_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("evaluate_every", 1), ("restarts", 1), ("batch_size", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, but {getattr(self, name)} came.")
        if not 0 <= self.validation < 1:
            raise ConfigError(
                f"validation is a share of the training classes, 0 <= share < 1, but {self.validation} came."
            )
        if not self.recalls or min(self.recalls) < 1:
            raise ConfigError(f"recalls are positive K, at least one, but {self.recalls} came.")

    @abstractmethod
    def build(self, train: Records) -> Method:
        """The method, its embedder included, for these training records. Torch is seeded just before."""


def find_recipe(name: str) -> type[Recipe]:
    """The recipe class of a packaged recipe's name or of a Python file that the caller names."""
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"the recipe file {path} does not exist.")
        spec = importlib.util.spec_from_file_location(f"vicinal_recipe_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{path} cannot be loaded as a Python file.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        if name not in packaged_recipes():
            raise ConfigError(unknown("recipe", name, packaged_recipes()) + " A file of your own ends in .py.")
        module = importlib.import_module(f"vicinal.recipes.{name}")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Recipe) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"a recipe file holds one subclass of Recipe, but {name} holds {len(found)}.")
    return found[0]


def settings(recipe: Recipe) -> dict[str, Any]:
    """Every resolved setting as JSON; ``from_settings`` reads it back."""
    return {field.name: describe(getattr(recipe, field.name)) for field in dataclasses.fields(recipe)}


def from_settings(kind: type[Recipe], saved: dict[str, Any]) -> Recipe:
    known = {field.name for field in dataclasses.fields(kind)}
    for name in saved:
        if name not in known:
            raise ConfigError("the saved recipe: " + unknown("setting", name, known))
    hints = [hint for hint in get_type_hints(kind).values() if isinstance(hint, type)]
    groups = {hint.__name__: hint for hint in hints if dataclasses.is_dataclass(hint)}
    return kind(**{name: build(value, DATASETS | TRANSFORMS | groups) for name, value in saved.items()})
