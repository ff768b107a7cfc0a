"""A recipe made real: data split, method built, everything that can be refused refused."""

import os
from dataclasses import dataclass

import numpy as np
import torch

from vicinal.data.records import Records, Split
from vicinal.data.splits import hold_out, overlapping_classes
from vicinal.data.transforms import Transform
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.methods.method import Method
from vicinal.training.recipe import Recipe


@dataclass(frozen=True)
class Experiment:
    """What a run trains and measures.

    Attributes:
        records: all rows, the validation classes already cut from the training classes.
        notes: what a reader of the results should know about the data.
    """

    recipe: Recipe
    records: Records
    train: Records
    method: Method
    device: torch.device
    workers: int
    notes: tuple[str, ...]

    @property
    def preprocessing(self) -> Transform:
        return self.recipe.transform.evaluation()

    @property
    def encoder(self) -> Encoder:
        """The network in training, with the preprocessing it is measured with."""
        return Encoder(self.method.embedder, self.preprocessing, self.device)

    def embed(self, encoder: Encoder, records: Records, *, features: bool = False) -> Embedded:
        """Embed records as the recipe says that they are read."""
        return encoder.embed(
            records,
            batch_size=self.recipe.batch_size,
            workers=self.workers,
            skip_corrupt=self.recipe.skip_corrupt,
            features=features,
        )

    def untrained(self) -> Encoder:
        """The network as it was before the first step: the same seed gives it again."""
        method = build_method(self.recipe, self.train, self.device)
        return Encoder(method.embedder, self.preprocessing, self.device)


def prepare(recipe: Recipe) -> Experiment:
    """Load and split the data, build the method; refuse what cannot work before anything is trained."""
    device = pick_device(recipe.device)
    records = recipe.data.load()
    if records.source.kind != recipe.transform.kind:
        raise ConfigError(
            f"the recipe prepares {recipe.transform.kind}, but {records.name} holds {records.source.kind}. "
            f"`vicinal recipes` lists a recipe for each."
        )
    if recipe.validation > 0:
        records = hold_out(records, recipe.validation, recipe.seed)
    train = records.part("train")
    if len(np.unique(train.labels)) < 2:
        raise DataError(
            f"{records.name} has {len(np.unique(train.labels))} training classes; learning needs at least 2."
        )
    measured: tuple[Split, ...] = ("validation", "test")
    for split in measured:
        _refuse_unmeasurable(records, split)
    method = build_method(recipe, train, device)
    shared = overlapping_classes(records)
    seen = (f"{len(shared)} classes are in training and test: the test measures known classes.",) if shared else ()
    return Experiment(recipe, records, train, method, device, pick_workers(recipe, records), seen + method.notes)


def _refuse_unmeasurable(records: Records, split: Split) -> None:
    """Retrieval needs something to find and something to confuse it with; say so before hours of training."""
    _, sizes = np.unique(records.part(split).labels, return_counts=True)
    if len(sizes) and (len(sizes) < 2 or sizes.max() < 2):
        raise DataError(
            f"the {split} part of {records.name} has {len(sizes)} classes of at most {sizes.max()} records; measuring "
            f"needs 2 classes, and 2 records in at least one. Move classes into it, or leave it empty."
        )


def build_method(recipe: Recipe, train: Records, device: torch.device) -> Method:
    torch.manual_seed(recipe.seed)
    method = recipe.build(train)
    method.to(device)
    return method


def pick_device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda was asked for, but torch sees no GPU. Use device=cpu, or check the driver.")
    return torch.device("cuda" if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()) else "cpu")


def pick_workers(recipe: Recipe, records: Records) -> int:
    """Reading files is worth a process per core; arrays in memory are faster without."""
    if recipe.workers is not None:
        return recipe.workers
    return 0 if records.source.in_memory else min(8, os.cpu_count() or 1)
