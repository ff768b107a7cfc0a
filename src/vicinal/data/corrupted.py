"""A data set whose training part has known faults, for asking which method bears them; its test part stays whole."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from vicinal.data.draws import uniform
from vicinal.data.records import Dataset, Records
from vicinal.errors import ConfigError, DataError


@dataclass(frozen=True)
class Corrupted:
    """Another data set, its training rows spoilt in one or more ways; all draws follow from the seed.

    In this order: some training classes are left out, several are merged into one, pairs of them are made inseparable,
    and labels are drawn anew. Validation classes that are held out later come from the spoilt part, as a user's would.
    Test rows are never touched, so every fault is measured on the same rows.

    Attributes:
        data: what is spoilt.
        classes: how many training classes stay; None is all.
        clusters: how many of the original classes are one class now: a class of several clusters.
        inseparable: share of the classes that lie in pairs whose rows are mixed at random: no network can part the two.
        label_noise: share of the rows that get the label of another class, each as likely.
        seed: of all draws.
    """

    data: Dataset
    classes: int | None = None
    clusters: int = 1
    inseparable: float = 0.0
    label_noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("inseparable", "label_noise"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is a share between 0 and 1, but {getattr(self, name)} came.")
        if self.clusters < 1 or (self.classes is not None and self.classes < 2):
            raise ConfigError(
                f"a class has 1 cluster or more, and 2 classes or more stay, but clusters={self.clusters} and "
                f"classes={self.classes} came."
            )

    def load(self) -> Records:
        records = self.data.load()
        training = np.flatnonzero(records.splits != "test")
        names = self._shuffled(np.unique(records.labels[training]), stream=0)
        if self.classes is not None and self.classes > len(names):
            raise DataError(f"{self.classes} training classes were to stay, but {records.name} has {len(names)}.")
        names = names[: self.classes]
        kept = np.isin(records.labels, names)
        kept[records.splits == "test"] = True
        records = records.take(np.flatnonzero(kept))
        rows = np.flatnonzero(records.splits != "test")
        labels = records.labels.copy()
        labels[rows] = self._mixed(self._merged(labels[rows], names), names[:: self.clusters])
        labels[rows] = self._noisy(labels[rows], np.unique(labels[rows]))
        return replace(records, labels=labels)

    def _merged(self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]) -> Int[np.ndarray, "n"]:
        """Every ``clusters`` classes of the shuffled ones take the name of their first."""
        place = np.empty(int(names.max()) + 1, dtype=np.int64)
        place[names] = np.arange(len(names)) // self.clusters * self.clusters
        return np.asarray(names[place[labels]])

    def _mixed(self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]) -> Int[np.ndarray, "n"]:
        """The rows of both classes of a pair get one of the two labels by the toss of a coin."""
        pairs = int(self.inseparable * len(names) / 2 + 0.5)
        heads = uniform(self.seed, 1, np.arange(len(labels)), 1)[:, 0] < 0.5
        for one, other in names[: 2 * pairs].reshape(pairs, 2):
            both = (labels == one) | (labels == other)
            labels = np.where(both, np.where(heads, one, other), labels)
        return labels

    def _noisy(self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]) -> Int[np.ndarray, "n"]:
        """A share of the labels moves on by 1 to c - 1 classes, so that a row that is to be wrong is."""
        wrong, draws = uniform(self.seed, 2, np.arange(len(labels)), 2).T
        steps = 1 + np.floor(draws * (len(names) - 1)).astype(np.int64)
        others = names[(np.searchsorted(names, labels) + steps) % len(names)]
        return np.where(wrong < self.label_noise, others, labels)

    def _shuffled(self, values: Int[np.ndarray, "c"], stream: int) -> Int[np.ndarray, "c"]:
        order = np.argsort(uniform(self.seed, stream, np.arange(len(values)), 1)[:, 0], kind="stable")
        return np.asarray(values[order])
