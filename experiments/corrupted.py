"""A data set whose training part has known faults, to compare how robust methods are; its test part
stays whole."""

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Int

from vicinal.arguments import Count, Limits, Settings, Share
from vicinal.data import DATASETS, DATASETS_BY_NAME
from vicinal.data.draws import uniform
from vicinal.data.records import Dataset, Records
from vicinal.data.splits import shuffled
from vicinal.errors import DataError


class Corrupted(Settings):
    """Another data set, its training rows corrupted in one or more ways; all draws follow from the
    seed.

    In this order: some training classes are left out, several are merged into one, pairs of them
    are made inseparable, and labels are redrawn. Validation classes that are held out later come
    from the corrupted part, as a user's would. Test rows are never touched, so every fault is
    measured on the same rows.

    Attributes:
        data: what is corrupted.
        classes: how many training classes stay; None is all.
        clusters: how many of the original classes are one class now: a class of several clusters.
        inseparable: share of the classes that lie in pairs whose rows are mixed at random: no
            network can part the two.
        label_noise: share of the rows that get the label of another class, each as likely.
        seed: of all draws.
    """

    slot: ClassVar[str] = "data"
    name: ClassVar[str] = "corrupted"  # for ``data=corrupted`` in tables that import this
    data: Dataset
    classes: Annotated[int, Limits("[2, inf)")] | None = None
    clusters: Count = 1
    inseparable: Share = 0.0
    label_noise: Share = 0.0
    seed: int = 0

    def load(self) -> Records:
        records = self.data.load()
        training = np.flatnonzero(records.splits != "test")
        names = shuffled(np.unique(records.labels[training]), self.seed)
        if self.classes is not None and self.classes > len(names):
            raise DataError(
                f"`data.classes` is {self.classes}, but {records.name} has {len(names)} training "
                "classes."
            )
        names = names[: self.classes]
        records = records.take(
            np.flatnonzero(np.isin(records.labels, names) | (records.splits == "test"))
        )
        rows = np.flatnonzero(records.splits != "test")
        labels = records.labels.copy()
        labels[rows] = self._mixed(self._merged(labels[rows], names), names[:: self.clusters])
        labels[rows] = self._noisy(labels[rows], np.unique(labels[rows]))
        return replace(records, labels=labels)

    def _merged(
        self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]
    ) -> Int[np.ndarray, "n"]:
        """Give every ``clusters`` classes of the shuffled ones the name of their first."""
        place = np.empty(int(names.max()) + 1, dtype=np.int64)
        place[names] = np.arange(len(names)) // self.clusters * self.clusters
        return np.asarray(names[place[labels]])

    def _mixed(
        self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]
    ) -> Int[np.ndarray, "n"]:
        """Give the rows of both classes of a pair one of the two labels by the toss of a coin."""
        pairs = int(self.inseparable * len(names) / 2 + 0.5)
        heads = uniform(self.seed, 1, np.arange(len(labels)), 1)[:, 0] < 0.5
        for one, other in names[: 2 * pairs].reshape(pairs, 2):
            both = (labels == one) | (labels == other)
            labels = np.where(both, np.where(heads, one, other), labels)
        return labels

    def _noisy(
        self, labels: Int[np.ndarray, "n"], names: Int[np.ndarray, "c"]
    ) -> Int[np.ndarray, "n"]:
        """Move a share of the labels on by 1 to c - 1 classes, so that a row that is to be wrong
        is."""
        wrong, draws = uniform(self.seed, 2, np.arange(len(labels)), 2).T
        steps = 1 + np.floor(draws * (len(names) - 1)).astype(np.int64)
        others = names[(np.searchsorted(names, labels) + steps) % len(names)]
        return np.where(wrong < self.label_noise, others, labels)


DATASETS_BY_NAME[Corrupted.name] = DATASETS[Corrupted.__name__] = Corrupted
