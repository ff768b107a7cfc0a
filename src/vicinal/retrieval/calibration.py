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

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.data import own_data
from vicinal.data.records import Split
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.retrieval.collection import Snapshot, model_fingerprint
from vicinal.run_directory import RunDirectory

NAME = "calibration"
# False-match rates where none is named. Among n items there are n²/2 pairs, so that of a dense
# group, which needs several near rows for each member, has to be small; a query is compared once.
DENSE_RATE, QUERY_RATE = 1e-4, 1e-3
VALIDATION, TEST = "validation classes", "test classes"
_BINS = 2**16
_TILE = 2048  # rows and columns of pairs at a time: float64 tiles of 32 MiB


@dataclass(frozen=True)
class Threshold:
    """A distance up to which two items are taken for the same.

    Attributes:
        distance: the largest that is still a match.
        false_match: share of the pairs of different classes within it, at most the rate asked for;
            None where the distance was named.
        true_match: share of the pairs of the same class within it.
        pairs: pairs of different classes that were counted.
        classes: classes behind them.
        source: what these classes are.
        unsupported: the rate asked for, where it is less than one of these pairs; one pair was used
            instead.
    """

    distance: float
    false_match: float | None = None
    true_match: float = 0.0
    pairs: int = 0
    classes: int = 0
    source: str = VALIDATION
    unsupported: float | None = None

    @property
    def words(self) -> str:
        """Where the distance comes from, in a sentence."""
        if self.false_match is None:
            return "The distance was named."
        limit = ""
        if self.unsupported is not None:
            limit = (
                f"{self.pairs:,} pairs support no rate below 1/{self.pairs} = "
                f"{1 / self.pairs:.2g}, which was used "
                f"instead of {self.unsupported:g}. "
            )
        return limit + (
            f"At {self.distance:.4f}, {self.false_match:.2g} of {self.pairs:,} pairs of different "
            f"classes among the {self.classes} {self.source} would be taken for the same, and "
            f"{self.true_match:.0%} of the pairs of "
            f"one class are."
        )


@dataclass(frozen=True)
class Calibration:
    """Pairs of labelled records, counted by distance.

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
    source: str = VALIDATION

    def threshold(self, rate: float) -> Threshold:
        """Find the largest distance at which no more than ``rate`` of the different pairs are taken
        for the same.

        Fewer than one pair cannot be counted: a smaller rate becomes that of one pair, and
            ``Threshold.words`` says so.
        """
        if not 0 < rate < 1:
            raise ConfigError(
                f"a false-match rate lies between 0 and 1; got {rate:g}. Try --max-false-match "
                "0.01."
            )
        total = int(self.different.sum())
        unsupported = rate if rate < 1 / total else None
        accepted = np.cumsum(self.different)
        bins = int(
            np.searchsorted(accepted, max(rate * total, 1), side="right")
        )  # those before it keep to the rate
        false = int(accepted[bins - 1]) if bins else 0
        true = float(self.same[:bins].sum() / max(1, self.same.sum()))
        # Just below the edge, for the bin that begins there no longer belongs to it.
        distance = float(np.nextafter(bins * self.width, 0))
        return Threshold(
            distance, false / total, true, total, self.classes, self.source, unsupported
        )


def distance_threshold(
    run: RunDirectory,
    *,
    distance: float | None = None,
    rate: float | None = None,
    usual: float = QUERY_RATE,
    device: torch.device | None = None,
    snapshot: Snapshot | None = None,
) -> Threshold:
    """Return the distance that was named, or that of a false-match rate on classes of the run.

    Args:
        run: whose validation or test classes calibrate.
        distance: takes the place of a calibration.
        rate: of false matches; None is ``usual``. At least that of one validation pair is used.
        usual: the rate where none is named.
        device: where to embed these classes, which happens once for each model.
        snapshot: of the collection whose labels calibrate where the run has no such classes.
    """
    if distance is not None and rate is not None:
        raise ConfigError(
            "--max-distance and --max-false-match both say how near is near enough. Give one of "
            "them."
        )
    if distance is not None:
        if not 0 <= distance < float("inf"):
            raise ConfigError(f"a distance is 0 or more; got --distance {distance}.")
        return Threshold(distance)
    return calibration(run, device=device, snapshot=snapshot).threshold(
        usual if rate is None else rate
    )


def calibration(
    run: RunDirectory, *, device: torch.device | None = None, snapshot: Snapshot | None = None
) -> Calibration:
    """Return the run's counts: those it keeps, or, for a model that has none yet, made now and
    kept."""
    model = model_fingerprint(run)
    kept = run.arrays(NAME)
    if kept is not None and str(kept["model"]) == model:
        return Calibration(
            float(kept["width"]),
            kept["different"],
            kept["same"],
            int(kept["classes"]),
            str(kept["source"]),
        )
    _, records = own_data(run)
    if records.captions is not None:
        fault = (
            "thresholds are set between items of one kind, but this run embeds pictures and texts"
        )
        raise ConfigError(f"{fault}. Name a distance with --max-distance.")
    splits: dict[str, Split] = {VALIDATION: "validation", TEST: "test"}
    parts = {source: records.part(split) for source, split in splits.items()}
    source = next((name for name in parts if len(np.unique(parts[name].labels)) >= 2), None)
    if source is None:
        return _of_collection(run, snapshot)
    encoder = Encoder.load(run, device)
    if encoder.embedder.metric != "euclidean":
        fault = (
            f"thresholds are set for Euclidean distances, but the run {run.path} has a "
            "hyperbolic head"
        )
        raise ConfigError(f"{fault}. Name a distance with --max-distance.")
    asking, held = encoder.stream("query"), encoder.stream("gallery")
    queries = asking.embed(parts[source], skip_corrupt=True)
    gallery = (
        None
        if asking.embedder is held.embedder
        else held.embed(parts[source], skip_corrupt=True).vectors
    )
    made = replace(count_pairs(queries.vectors, queries.labels, gallery=gallery), source=source)
    run.write_arrays(
        NAME, **{name: np.array(value) for name, value in vars(made).items()}, model=np.array(model)
    )
    return made


def _of_collection(run: RunDirectory, snapshot: Snapshot | None) -> Calibration:
    """Count the labeled items of a collection; nothing is kept, since labels change."""
    items = () if snapshot is None else snapshot.items()
    rows = [row for row, item in enumerate(items) if item.label is not None]
    labels = np.unique([str(items[row].label) for row in rows], return_inverse=True)[1]
    if snapshot is None or len(np.unique(labels)) < 2:
        raise ConfigError(
            f"a distance threshold needs 2 or more classes with labels: {run.path} held out none, "
            "and the collection has fewer. Index labelled pictures, or name a distance with "
            "--max-distance."
        )
    vectors = torch.from_numpy(snapshot.euclidean_vectors()[rows])
    return replace(
        count_pairs(vectors, torch.from_numpy(labels)), source="labels of the collection"
    )


def count_pairs(
    vectors: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    *,
    gallery: Float[Tensor, "n d"] | None = None,
) -> Calibration:
    """Count all pairs of rows by Euclidean distance and by whether their classes differ.

    Args:
        vectors: one for each record.
        labels: their classes.
        gallery: the same records as a gallery's network sees them, where a model has one; a pair is
            then a query and another record of the gallery.
    """
    center = vectors.double().mean(dim=0)
    rows = vectors.double() - center
    columns = rows if gallery is None else gallery.double() - center
    farthest = float(rows.norm(dim=1).max()) + float(
        columns.norm(dim=1).max()
    )  # no pair is farther apart
    width = farthest * (1 + 1e-9) / _BINS or 1.0
    counts = torch.zeros(2, _BINS, dtype=torch.long)
    for top in range(0, len(rows), _TILE):
        for start in range(top if gallery is None else 0, len(rows), _TILE):
            distances = torch.cdist(rows[top : top + _TILE], columns[start : start + _TILE])
            same = labels[top : top + _TILE].unsqueeze(1) == labels[start : start + _TILE]
            once = torch.ones_like(same)
            if start == top:  # each pair once, and none of a record with itself
                once = once.triu(1) if gallery is None else ~torch.eye(len(same), dtype=torch.bool)
            places = (distances[once] / width).long().clamp(max=_BINS - 1) + _BINS * same[
                once
            ].long()
            counts += torch.bincount(places, minlength=2 * _BINS).view(2, _BINS)
    different, alike = counts.numpy()
    return Calibration(width, different, alike, len(torch.unique(labels)))
