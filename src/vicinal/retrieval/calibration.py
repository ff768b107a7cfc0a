"""How near is near enough: a distance threshold, named or set on classes that training never saw.

Two pictures of different classes that lie nearer than the threshold are a false match. The share of
such pairs among all pairs of different classes is counted on the run's validation classes, which
were held out of its training, and the threshold is the largest that keeps the share at the rate
asked for. A run that held out none is counted on its test classes. It is a rate per pair: a query
compared with n items of other classes meets about n times as many.

The counts are kept with the run in fine bins of distance, so any rate can be asked for later; a
threshold is always the lower edge of a bin, on the safe side by less than one bin.

`thresholds` sets one for each class of a collection instead, on labeled queries of the user's own
or on the collection itself, and writes them as a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.data import own_data, records_at
from vicinal.data.records import Split
from vicinal.data.table import read_columns
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.verification import pairs_by_distance
from vicinal.files import write_atomically
from vicinal.retrieval.collection import Match, Snapshot, drawn
from vicinal.retrieval.pages import as_csv, as_given
from vicinal.run_directory import RunDirectory, model_fingerprint

NAME = "calibration"
QUERY_RATE = 1e-3  # of false matches where none is named
_HEADER = "label", "distance", "false_match", "true_match", "pairs"  # of ``thresholds``
_ROWS = 4096  # drawn of more records: eight million pairs are enough for any rate


@dataclass(frozen=True)
class Threshold:
    """A distance up to which two items are taken for the same.

    Attributes:
        distance: the largest that is still a match.
        false_match: share of the pairs of different classes within it; None of one that was named.
        words: where the distance comes from, in a sentence.
        of_class: another distance for items of some classes.
    """

    distance: float
    false_match: float | None
    words: str
    of_class: Mapping[str, float] = field(default_factory=dict)

    def accepts(self, match: Match) -> bool:
        """Whether a neighbor is near enough."""
        return match.distance <= self.of_class.get(match.item.label or "", self.distance)

    @property
    def document(self) -> dict[str, float | None]:
        """What is told of it, as JSON."""
        return {"distance": self.distance, "false_match_rate": self.false_match}

    @classmethod
    def read(cls, path: Path) -> "Threshold":
        """Read what ``thresholds`` wrote."""
        columns = read_columns(path)
        if not {*_HEADER} <= columns.cells.keys() or "" not in columns.cells["label"]:
            raise DataError(
                f"{path} should have the columns {', '.join(_HEADER)} and a row without a label, "
                "for all classes. Write it by `vicinal calibrate`."
            )
        distances = columns.numbers("distance").tolist()
        of_class = dict(zip(map(as_given, columns.cells["label"]), distances, strict=True))
        false = columns.numbers("false_match")[columns.cells["label"].index("")]
        words = f"{path} has it, and those of {len(of_class) - 1} classes."
        return cls(of_class.pop(""), float(false), words, of_class)


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
    different: np.ndarray
    same: np.ndarray
    classes: int
    source: str

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
    run: RunDirectory, *, device: torch.device | None = None, texts: bool = False
) -> Calibration:
    """Return the run's counts: those it keeps, or, for a model that has none yet, made now and
    kept.

    Args:
        run: whose validation or test classes calibrate.
        device: where to embed these classes, which happens once for each model.
        texts: whether texts ask for pictures, whose distances are larger than among pictures.
    """
    name = f"{NAME}_texts" if texts else NAME
    model = model_fingerprint(run)
    kept = run.arrays(name)
    if kept is not None and str(kept.pop("model")) == model:
        plain: dict[str, Any] = {name: array[()] for name, array in kept.items()}
        return Calibration(**plain)
    encoder = Encoder.load(run, device)
    records = own_data(run)[1]
    splits: tuple[Split, ...] = ("validation", "test")
    split = next((one for one in splits if len(np.unique(records.part(one).labels)) >= 2), None)
    if split is None:
        raise ConfigError(
            f"a distance threshold needs classes that {run.path} did not train on, but it held out "
            "none. Calibrate on labels of its collection: `vicinal calibrate`, and --thresholds."
        )
    part = records.part(split)
    part = part.take(np.sort(drawn(len(part), _ROWS)))
    if records.captions is not None and not texts:
        encoder = encoder.stream("gallery")
    embedded = encoder.embed(part, skip_corrupt=True)
    if embedded.metric != "euclidean":
        raise ConfigError(
            "thresholds are set for Euclidean distances, but this run has a hyperbolic head."
        )
    queries, labels, gallery = embedded.sides()
    counts = pairs_by_distance(queries, labels, **gallery)
    made = Calibration(*counts, len(torch.unique(labels, dim=0)), f"{split} classes")
    run.write_arrays(
        name, **{name: np.array(value) for name, value in vars(made).items()}, model=np.array(model)
    )
    return made


# -- by class -------------------------------------------------------------------------------------


def thresholds(
    run: RunDirectory,
    snapshot: Snapshot,
    path: Path,
    *,
    rate: float,
    queries: str | None,
    device: torch.device,
) -> Threshold:
    """Set the largest distance of each class of a collection at which at most ``rate`` of the
    queries of other classes match an item of it; first, without a label, that of all together.

    A class of too few pairs for the rate has that of one pair.

    Args:
        path: the ``.csv`` to write: ``label``, ``distance``, the shares of pairs of different
            classes and of the same within it, and how many pairs of different classes there were.
        queries: labeled pictures, vectors or texts; None for the collection's own items, each
            among the others.
    """
    if not 0 < rate < 1:
        raise ConfigError(f"a false-match rate lies between 0 and 1; got {rate:g}. Try 0.01.")
    rows, names, labels = snapshot.labeled()
    items = torch.from_numpy(snapshot.euclidean_vectors()[rows])
    if queries is None:
        own = drawn(len(rows), _ROWS)
        asking = items[own].double()
        asked = labels[own]
    else:
        records = records_at(queries, run)
        records = records.take(drawn(len(records), _ROWS))
        encoder = Encoder.load(run, device)
        asks = encoder.stream("query")
        if asks.embedder.reads_text and records.source.kind != "text":
            asks = encoder.stream("gallery")
        embedded = asks.embed(records, skip_corrupt=True)
        asking = embedded.vectors.double()
        own = np.full(len(asking), -1)
        places = {name: place for place, name in enumerate(names)}
        numbers = np.array([places.get(name, -1) for name in records.classes])
        asked = numbers[embedded.records.labels]
    chosen = {"": drawn(len(rows), _ROWS)}
    chosen |= {name: np.flatnonzero(labels == label) for label, name in enumerate(names)}
    found = []
    for name, held in chosen.items():
        far = torch.cdist(asking, items[held].double()).numpy()
        same = asked[:, None] == labels[held]
        other = np.sort(far[~same])
        alike = far[same & (own[:, None] != held)]
        if not len(other):
            raise ConfigError(f"no query is of another class than {name or 'all'}. Give others.")
        most = int(max(rate * len(other), 1))
        limit = float(np.nextafter(other[most], 0)) if most < len(other) else float(other[-1])
        false = float((other <= limit).mean())
        true = (alike <= limit).mean() if len(alike) else ""
        found.append((name, repr(limit), false, true, len(other)))
    table = as_csv(_HEADER, ([str(cell) for cell in row] for row in found))
    write_atomically(path, lambda file: file.write(table.encode()))
    return Threshold.read(path)
