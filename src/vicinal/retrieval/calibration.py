"""How near is near enough: a distance threshold, named or set on classes that training never saw.

Two pictures of different classes that lie nearer than the threshold are a false match. The share of
such pairs among all pairs of different classes is counted on the run's validation classes, which
were held out of its training, and the threshold is the largest that keeps the share at the rate
asked for. A run that held out none is counted on its test classes, or, without those, on the labels
of the collection that is searched. It is a rate per pair: a query compared
with n items of other classes meets about n times as many.

The counts are kept with the run in fine bins of distance, so any rate can be asked for later; a
threshold is always the lower edge of a bin, on the safe side by less than one bin.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.data import own_data
from vicinal.data.records import Split
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.verification import pairs_by_distance
from vicinal.retrieval.collection import Snapshot, drawn
from vicinal.run_directory import RunDirectory, model_fingerprint

NAME = "calibration"
QUERY_RATE = 1e-3  # of false matches where none is named
_ROWS = 4096  # drawn of more records: eight million pairs are enough for any rate


@dataclass(frozen=True)
class Threshold:
    """A distance up to which two items are taken for the same.

    Attributes:
        distance: the largest that is still a match.
        false_match: share of the pairs of different classes within it.
        words: where the distance comes from, in a sentence.
    """

    distance: float
    false_match: float
    words: str


@dataclass(frozen=True)
class Calibration:
    """Pairs of records, counted by distance.

    Attributes:
        width: of a bin; bin ``i`` holds distances from ``i * width`` up to, not including, ``(i +
            1) * width``.
        different: pairs of different classes in each bin.
        same: pairs of the same class.
        classes: how many classes there were.
        source: what they are.
    """

    width: float
    different: Int[np.ndarray, "bins"]
    same: Int[np.ndarray, "bins"]
    classes: int
    source: str = "validation classes"

    def threshold(self, rate: float) -> Threshold:
        """Find the largest distance at which no more than ``rate`` of the different pairs are taken
        for the same; a rate of less than one pair becomes that of one, and the words say so."""
        if not 0 < rate < 1:
            raise ConfigError(
                f"a false-match rate lies between 0 and 1; got {rate:g}. Try --max-false-match "
                "0.01."
            )
        total = int(self.different.sum())
        accepted = np.cumsum(self.different)
        # those before it keep to the rate
        bins = int(np.searchsorted(accepted, max(rate * total, 1), side="right"))
        false = float(accepted[bins - 1] / total) if bins else 0.0
        true = float(self.same[:bins].sum() / max(1, self.same.sum()))
        # Just below the edge, for the bin that begins there no longer belongs to it.
        distance = float(np.nextafter(bins * self.width, 0))
        words = (
            f"At {distance:.4f}, {false:.2g} of {total:,} pairs of different classes among the "
            f"{self.classes} {self.source} would be taken for the same, and {true:.0%} of the "
            "pairs of one class are."
        )
        if rate * total < 1:
            words = (
                f"{total:,} pairs support no rate below 1/{total} = {1 / total:.2g}, which was "
                f"used instead of {rate:g}. {words}"
            )
        return Threshold(distance, false, words)


def calibration(
    run: RunDirectory, *, device: torch.device | None = None, snapshot: Snapshot | None = None
) -> Calibration:
    """Return the run's counts: those it keeps, or, for a model that has none yet, made now and
    kept.

    Args:
        run: whose validation or test classes calibrate.
        device: where to embed these classes, which happens once for each model.
        snapshot: of the collection whose labels calibrate where the run has no such classes.
    """
    model = model_fingerprint(run)
    kept = run.arrays(NAME)
    if kept is not None and str(kept.pop("model")) == model:
        plain: dict[str, Any] = {
            name: array if array.ndim else array.item() for name, array in kept.items()
        }
        return Calibration(**plain)
    encoder = Encoder.load(run, device)
    records = own_data(run)[1]
    if records.captions is not None or encoder.embedder.metric != "euclidean":
        raise ConfigError(
            "thresholds are set for Euclidean distances between items of one kind, but this run "
            "embeds pictures and texts, or has a hyperbolic head."
        )
    splits: tuple[Split, ...] = ("validation", "test")
    split = next((one for one in splits if len(np.unique(records.part(one).labels)) >= 2), None)
    if split is None:
        return _of_collection(run, snapshot)
    part = records.part(split)
    part = part.take(np.sort(drawn(len(part), _ROWS)))
    asking = encoder.stream("query")
    held = encoder.stream("gallery")
    queries = asking.embed(part, skip_corrupt=True)
    gallery = None
    if held.embedder is not asking.embedder:
        gallery = held.embed(part, skip_corrupt=True).vectors
    made = count_pairs(queries.vectors, queries.labels, gallery, source=f"{split} classes")
    run.write_arrays(
        NAME, **{name: np.array(value) for name, value in vars(made).items()}, model=np.array(model)
    )
    return made


def _of_collection(run: RunDirectory, snapshot: Snapshot | None) -> Calibration:
    """Count the labeled items of a collection; nothing is kept, since labels change."""
    if snapshot is None or len(snapshot.labels()) < 2:
        raise ConfigError(
            f"a distance threshold needs 2 or more classes with labels: {run.path} held out none, "
            "and the collection has fewer. Index labeled pictures."
        )
    rows, _, labels = snapshot.labeled()
    some = np.sort(drawn(len(rows), _ROWS))
    vectors = torch.from_numpy(snapshot.vectors[rows[some]])
    source = "labels of the collection"
    return count_pairs(vectors, torch.from_numpy(labels[some]), source=source)


def count_pairs(
    queries: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    gallery: Float[Tensor, "n d"] | None = None,
    *,
    source: str = "validation classes",
) -> Calibration:
    """Count all pairs of a query and another record of the gallery by Euclidean distance and by
    whether their classes differ.

    Args:
        queries: one for each record.
        labels: their classes.
        gallery: the same records as a gallery's network sees them, where a model has one;
            otherwise each pair counts once.
        source: what the classes are.
    """
    counts = pairs_by_distance(queries, labels, gallery)
    return Calibration(*counts, len(torch.unique(labels)), source)
