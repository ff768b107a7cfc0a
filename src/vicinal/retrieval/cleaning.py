"""What is probably wrong in a labeled collection, and what to label next.

A label is judged by all other rows: by how near the row is to each class's mean, in the scatter
within classes, and by the labels of its nearest neighbors. Both leave the row out, so that it
cannot vouch for itself. The two are weighed against one another, and turned into probabilities, by
the likelihood of the labels under a share of wrong ones, which is estimated with them.
``experiments/cleaning.md`` has the measurements behind these choices.

``findings.csv`` has the columns ``row,path,label,kind,score,suggested,neighbors``, by falling
score: the row and path of the collection, its label, ``label``, ``duplicate``, ``outlier`` or
``class``, a score in [0, 1], the label that it probably should have (of a duplicate and of a class,
the other one's), and the paths of the rows that disagree, separated by ``|``. Decisions on them are
a table of ``path,label``: an empty label drops the row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.data import own_description
from vicinal.data.records import Progress
from vicinal.data.table import Columns, read_columns, text_names
from vicinal.distances import Metric
from vicinal.errors import DataError, unknown
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.neighbors import neighbors
from vicinal.files import read_arrays
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import TILES, Contents, Group, as_csv, as_given
from vicinal.retrieval.duplicates import calibrate_likeness, collection_views, duplicate_pairs
from vicinal.retrieval.indexing import list_again, unlabeled_records
from vicinal.retrieval.listing import place_path
from vicinal.retrieval.store import Item
from vicinal.run_directory import RunDirectory

Kind = Literal["label", "duplicate", "outlier", "class"]
NEIGHBORS = 15  # that vote on a label; 10 and 25 measured alike
_SMOOTHING = 0.1  # of a vote, shared by all classes
_FITTED = 4096  # rows on which three numbers are fitted
_LOGITS = 2**23  # values at a time: 64 MiB
_LIKELY = 0.5  # score from which a label is listed; duplicates have no less
_LEAST = -3.9  # logit of twice the share of wrong labels: 1 % is taken for granted
_REMOTE = 10  # neighbors from which an outlier is far; 5 and 15 measured about alike
_FAR = 0.9  # score from which an outlier is: by chance one in ten sets has one
_OVERLAP = 0.3  # score from which two classes are
_SHOWN = 5  # neighbors of a finding
_NEAR_COPY = (
    0.25  # of the median distance to the nearest: vectors nearer than that are taken for copies
)


# -- wrong labels ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdicts:
    """What all other rows say about the label of each.

    Attributes:
        wrong: probability that the label is wrong; 0 for the only row of a class, which cannot be
            judged.
        suggested: the most probable other class.
        probability: of that class.
        noise: estimated share of wrong labels.
        ids: nearest rows.
        distances: of these.
    """

    wrong: Float[np.ndarray, "n"]
    suggested: Int[np.ndarray, "n"]
    probability: Float[np.ndarray, "n"]
    noise: float
    ids: Int[np.ndarray, "n k"]
    distances: Float[np.ndarray, "n k"]


class _Evidence:
    """Logits of all classes for some rows, each computed as if the row were not there."""

    def __init__(
        self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, "n"], classes: int, metric: Metric
    ) -> None:
        found = neighbors(vectors, min(NEIGHBORS, len(vectors) - 1), metric=metric)
        self.ids, self.distances, self.labels, self.classes = (
            found.ids,
            found.distances,
            labels,
            classes,
        )
        rows = vectors.double() - vectors.double().mean(dim=0)
        self.sizes = torch.bincount(labels, minlength=classes).double()
        means = rows.new_zeros(classes, rows.shape[1]).index_add_(
            0, labels, rows
        ) / self.sizes.unsqueeze(1)
        residuals = rows - means[labels]
        scatter = residuals.T @ residuals
        # As `models.starts`: shrunk by the mean variance, for few rows a class tell little of the
        # scatter.
        variance = scatter.diagonal().mean().clamp(min=torch.finfo(torch.float64).tiny)
        root = torch.linalg.cholesky(
            scatter + variance * torch.eye(len(scatter), dtype=torch.float64)
        )
        self.rows, self.means = (
            torch.linalg.solve_triangular(root, each.T, upper=False).T for each in (rows, means)
        )

    def discriminants(self, at: Int[Tensor, "b"]) -> Float[Tensor, "b c"]:
        """Return -n/2 times the squared Mahalanobis distance of rows to class means, neither
        knowing the row.

            S' = S - f r rᵀ,  S'^-1 = S^-1 + f S^-1 r rᵀ S^-1 / (1 - f rᵀ S^-1 r),   f = m / (m - 1)

        r is the row less the mean of its class of m rows, S the scatter with its shrinkage; the
        second equation is that of Sherman and Morrison. Without the row its class's mean is farther
        by the factor f.
        """
        rows, own, size = self.rows[at], self.labels[at], self.sizes[self.labels[at]]
        factor = torch.where(size > 1, size / (size - 1).clamp(min=1), 0.0)
        residual = rows - self.means[own]
        length = residual.square().sum(dim=1)
        gain = factor / (1 - factor * length).clamp(min=1e-9)
        squared = torch.cdist(rows, self.means).square()
        along = (residual * rows).sum(dim=1, keepdim=True) - residual @ self.means.T
        squared += gain.unsqueeze(1) * along.square()
        squared[torch.arange(len(at)), own] = factor.square() * (length + gain * length.square())
        return -len(self.rows) / 2 * squared

    def votes(self, at: Int[Tensor, "b"]) -> Float[Tensor, "b c"]:
        """Return the logarithm of each class's share of the nearest rows, weighted by exp(-2 d² /
        d_k²)."""
        squared = self.distances[at].double().square()
        weights = torch.exp(-2 * squared / squared[:, -1:].clamp(min=1e-300))
        shares = weights.new_zeros(len(at), self.classes).scatter_add_(
            1, self.labels[self.ids[at]], weights
        )
        return (shares / weights.sum(dim=1, keepdim=True) + _SMOOTHING / self.classes).log()

    def __call__(self, at: Int[Tensor, "b"]) -> Float[Tensor, "2 b c"]:
        logits = torch.stack([self.discriminants(at), self.votes(at)])
        return logits - logits.amax(dim=2, keepdim=True)


def judge_labels(
    vectors: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, "n"],
    *,
    metric: Metric = "euclidean",
    progress: Progress = lambda done: None,
) -> Verdicts:
    """Compute the probability that each label is wrong, from all other rows.

        q = softmax(a · discriminants + b · votes)
        P(label | row) = (1 - η) q_label + η (1 - q_label) / (C - 1)
        P(wrong | row, label) = η (1 - q_label) / (C - 1) / P(label | row)

    Of C classes each other is as likely to stand in the place of the right one. a, b and the share
    η of wrong labels maximize the likelihood of the labels that are there.

    Args:
        vectors: one for each row.
        labels: classes from 0, each with a row.
        metric: by which vectors are near.
        progress: called with how many rows are done.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], 40)
    >>> vectors = 8 * np.eye(3)[labels] + rng.normal(size=(120, 3))
    >>> labels[5] = 2
    >>> verdicts = judge_labels(vectors, labels)
    >>> verdicts.wrong.argmax().item(), verdicts.suggested[5].item(), bool(verdicts.wrong[5] > 0.9)
    (5, 0, True)
    """
    classes = int(labels.max()) + 1 if len(labels) else 0
    if classes < 2 or len(labels) <= classes:
        got = f"{len(labels)} rows of {classes} classes"
        raise DataError(
            f"labels are judged by other rows; got {got}. Index more rows of at least 2 classes."
        )
    given = torch.from_numpy(np.asarray(labels, np.int64))
    evidence = _Evidence(torch.from_numpy(np.array(vectors)), given, classes, metric)
    judged = evidence.sizes[given] > 1
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(given)))
    some = order[judged[order]][: max(64, min(_FITTED, 2 * _LOGITS // classes))]
    parts = torch.split(some, max(1, _LOGITS // classes))
    scales, noise = _fitted(torch.cat([evidence(part) for part in parts], dim=1), given[some])
    wrong, probability, suggested = (
        torch.zeros(len(given)),
        torch.zeros(len(given)),
        torch.zeros_like(given),
    )
    for at in torch.split(torch.arange(len(given)), max(1, _LOGITS // classes)):
        shares = torch.einsum("s,sbc->bc", scales, evidence(at)).softmax(dim=1)
        own = shares.gather(1, given[at].unsqueeze(1)).squeeze(1)
        error = noise * (1 - own) / (classes - 1)
        wrong[at] = torch.where(
            judged[at], error / ((1 - noise) * own + error).clamp(min=1e-300), 0
        ).float()
        best = shares.scatter(1, given[at].unsqueeze(1), -1.0).max(dim=1)
        suggested[at], probability[at] = best.indices, best.values.float()
        progress(int(at[-1]) + 1)
    ids, distances = evidence.ids.numpy(), evidence.distances.numpy()
    return Verdicts(wrong.numpy(), suggested.numpy(), probability.numpy(), noise, ids, distances)


def _fitted(
    logits: Float[Tensor, "2 b c"], labels: Int[Tensor, "b"]
) -> tuple[Float[Tensor, "2"], float]:
    """Maximize the likelihood of the labels over the two scales and the share of wrong labels, at
    most one half."""
    from scipy.optimize import minimize

    units = logits.std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    logits, classes = logits / units, logits.shape[2]

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(values, requires_grad=True)
        own = (
            torch.einsum("s,sbc->bc", free[:2].exp(), logits)
            .softmax(dim=1)
            .gather(1, labels.unsqueeze(1))
        )
        noise = free[2].sigmoid() / 2
        likelihood = (1 - noise) * own + noise * (1 - own) / (classes - 1)
        total = -likelihood.clamp(min=1e-300).log().mean()
        (gradient,) = torch.autograd.grad(total, free)
        return total.item(), gradient.numpy()

    # Three starts, for the likelihood has a second peak where scales are small and nothing is
    # wrong.
    bounds = [(-8, 5), (-8, 5), (_LEAST, 8)]
    tried = [
        minimize(loss, [0, 0, start], jac=True, method="L-BFGS-B", bounds=bounds)
        for start in (-3, -1, 0)
    ]
    found = torch.from_numpy(min(tried, key=lambda each: float(each.fun)).x)
    return found[:2].exp() / units.flatten(), float(found[2].sigmoid()) / 2


# -- findings -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """Something to look at: the row, what may be wrong, its probability, and the rows that are
    evidence."""

    row: int
    kind: Kind
    score: float
    suggested: str
    neighbors: tuple[int, ...]
    distances: tuple[float, ...]


@dataclass(frozen=True)
class Findings:
    """All findings by falling score, and how they were made, in sentences."""

    found: Sequence[Finding]
    words: Sequence[str]


def find_issues(
    snapshot: Snapshot,
    features: Float[np.ndarray, "n c"] | None = None,
    progress: Progress = lambda done: None,
) -> Findings:
    """Find probable label errors, copies across classes, outliers and ambiguous classes among the
    labeled items.

    Args:
        snapshot: the collection.
        features: of all items, by which to judge in the place of the embeddings; see
            `backbone_features`.
        progress: called with how many rows are done.
    """
    rows, names, labels = labeled(snapshot)
    vectors = np.array((snapshot.vectors() if features is None else features)[rows])
    metric: Metric = snapshot.metric if features is None else "euclidean"
    verdicts = judge_labels(vectors, labels, metric=metric, progress=progress)
    copies, words = _copies(snapshot, rows, labels, names, verdicts)
    given, apart = (verdicts, labels, names), verdicts
    if features is not None:
        apart = by_direction(verdicts, vectors)
    found = [*_label_errors(*given), *copies, *_outliers(apart), *_ambiguous(*given)]
    found = [
        replace(each, row=int(rows[each.row]), neighbors=tuple(rows[list(each.neighbors)].tolist()))
        for each in found
    ]
    found.sort(key=lambda each: (-each.score, each.row, each.kind))
    wrong = sum(each.kind == "label" for each in found)
    share = f"{wrong:,} of {len(rows):,} labels are probably wrong, judged by all other items."
    return Findings(found, [share, words])


def backbone_features(
    run: RunDirectory, snapshot: Snapshot, device: torch.device | None = None
) -> np.ndarray | None:
    """Return the backbone's features of all items, where the run was trained on some of them; else
    None.

    An embedding that was trained on wrong labels has learned to vouch for them; what lies before
    the head has less.
    """
    if place_path(own_description(run)) not in (place.path for place in snapshot.places):
        return None
    encoder, found = Encoder.load(run, device).stream("gallery"), dict[int, np.ndarray]()
    for number, place in enumerate(snapshot.places):
        snapshot.pictures.require_named(place)
        listing = list_again(run, place.path, place.split, place.images)
        positions = {entry.path: position for position, entry in enumerate(listing.entries)}
        rows = {row: item.path for row, item in enumerate(snapshot.items()) if item.place == number}
        if missing := [path for path in rows.values() if path not in positions]:
            raise DataError(
                f"{missing[0]} was indexed, but is no longer in {place.path}. Index it again."
            )
        records = unlabeled_records(
            listing, np.array([positions[path] for path in rows.values()], np.int64)
        )
        found |= dict(zip(rows, encoder.embed(records, features=True).vectors.numpy(), strict=True))
    return np.stack([found[row] for row in range(len(snapshot))])


def labeled(snapshot: Snapshot) -> tuple[Int[np.ndarray, "m"], list[str], Int[np.ndarray, "m"]]:
    """Return the rows that have a label, the classes' names in order, and the class of each row."""
    rows = [row for row, item in enumerate(snapshot.items()) if item.label is not None]
    names, labels = np.unique(
        [str(snapshot.items()[row].label) for row in rows], return_inverse=True
    )
    return np.array(rows, np.int64), names.tolist(), labels.astype(np.int64)


def _finding(
    verdicts: Verdicts,
    row: int,
    kind: Kind,
    score: float,
    suggested: str,
    among: Int[np.ndarray, "m"] | None = None,
) -> Finding:
    """Return a finding with its nearest rows as evidence, or some of them by their places in the
    list."""
    near, far = (
        (each[row] if among is None else each[row, among])[:_SHOWN]
        for each in (verdicts.ids, verdicts.distances)
    )
    return Finding(row, kind, float(score), suggested, tuple(near.tolist()), tuple(far.tolist()))


def _label_errors(
    verdicts: Verdicts, labels: np.ndarray, names: Sequence[str]
) -> Iterator[Finding]:
    for row in np.flatnonzero(verdicts.wrong >= _LIKELY).tolist():
        near, suggested = labels[verdicts.ids[row]], verdicts.suggested[row]
        others = np.flatnonzero(near != labels[row])
        others = others[
            np.argsort(near[others] != suggested, kind="stable")
        ]  # the suggested class first
        yield _finding(verdicts, row, "label", verdicts.wrong[row], names[suggested], others)


def _copies(
    snapshot: Snapshot,
    rows: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    verdicts: Verdicts,
) -> tuple[list[Finding], str]:
    """Return pairs of rows of different classes that are near copies; and how they were found, in
    words.

    Pictures are compared as `vicinal dedupe` does; where there are none, or none that can be
    compared, vectors. The score falls from 1, equal, to one half at the distance up to which
    pictures are taken for copies.
    """
    at = dict(zip(rows.tolist(), range(len(rows)), strict=True))
    try:
        pictured, views = collection_views(snapshot)
        likeness = calibrate_likeness(snapshot, pictured, views)
        limit, words = likeness.distance, likeness.words
        pairs = duplicate_pairs(snapshot, pictured, views, limit)
        found = zip(
            pairs.left.tolist(), pairs.right.tolist(), pairs.distances.tolist(), strict=True
        )
        near = {(at[one], at[other]): far for one, other, far in found if one in at and other in at}
    except DataError:
        limit = _NEAR_COPY * float(np.median(verdicts.distances[:, 0]))
        first, place = np.nonzero(verdicts.distances <= limit)
        second = verdicts.ids[first, place]
        ends = np.minimum(first, second).tolist(), np.maximum(first, second).tolist()
        near = dict(
            zip(zip(*ends, strict=True), verdicts.distances[first, place].tolist(), strict=True)
        )
        words = (
            f"Vectors within {limit:.4g}, {_NEAR_COPY:g} of the median distance to the "
            "nearest, are near copies."
        )
    return [
        Finding(
            one,
            "duplicate",
            1 - far / limit / 2 if limit else 1.0,
            names[labels[other]],
            (other,),
            (far,),
        )
        for pair, far in near.items()
        if labels[pair[0]] != labels[pair[1]]
        for one, other in [
            sorted(pair, key=lambda row: -verdicts.wrong[row])
        ]  # the more doubtful one first
    ], words


def _outliers(verdicts: Verdicts) -> Iterator[Finding]:
    """Yield rows far from their nearest ones, by Chauvenet's criterion on the logarithm of the mean
    distance.

    The score is 1 - n p: p is the share of a normal distribution, of the same median and median
    deviation, beyond the row, so n p such rows were to be expected.
    """
    from scipy.stats import norm

    far = remoteness(verdicts)
    scores = 1 - np.minimum(1, len(far) * norm.sf(far))
    for row in np.flatnonzero(scores >= _FAR).tolist():
        yield _finding(verdicts, row, "outlier", scores[row], "")


def by_direction(verdicts: Verdicts, features: Float[np.ndarray, "n c"]) -> Verdicts:
    """Return verdicts with neighbors of the features' directions: their length says little about
    what is unusual."""
    unit = torch.nn.functional.normalize(torch.from_numpy(features), dim=1)
    near = neighbors(unit, verdicts.ids.shape[1])
    return replace(verdicts, ids=near.ids.numpy(), distances=near.distances.numpy())


def remoteness(verdicts: Verdicts) -> Float[np.ndarray, "n"]:
    """Return how far each row is from its 10 nearest, in standard deviations of a normal
    distribution; 0 if all alike.

    The logarithm of the mean distance is compared with its median, in units of 1.4826 times its
    median deviation.
    """
    reach = np.log(verdicts.distances[:, :_REMOTE].astype(np.float64).mean(axis=1).clip(min=1e-300))
    apart = reach - np.median(reach)
    spread = 1.4826 * float(np.median(np.abs(apart)))
    return apart / spread if spread > 0 else np.zeros(len(reach))


def _ambiguous(verdicts: Verdicts, labels: np.ndarray, names: Sequence[str]) -> Iterator[Finding]:
    """Yield pairs of classes that overlap, each shown by the row that is most probably of the other
    class."""
    for score, row in class_overlaps(verdicts, labels).values():
        if score >= _OVERLAP:
            other = verdicts.suggested[row]
            near = np.flatnonzero(labels[verdicts.ids[row]] == other)
            yield _finding(verdicts, row, "class", min(1.0, score), names[other], near)


def class_overlaps(
    verdicts: Verdicts, labels: Int[np.ndarray, "n"]
) -> dict[frozenset[int], tuple[float, int]]:
    """Return by pair of classes the mean probability of the other class in both, added up, and a
    row between them.

    1 is where nothing parts them; rows whose label is probably wrong are not counted.
    """
    sound = np.flatnonzero(verdicts.wrong < _LIKELY)
    sizes, found = np.bincount(labels[sound]), dict[frozenset[int], tuple[float, int]]()
    for row in sound[np.argsort(-verdicts.probability[sound], kind="stable")].tolist():
        pair = frozenset((int(labels[row]), int(verdicts.suggested[row])))
        score, first = found.get(pair, (0.0, row))
        found[pair] = score + float(verdicts.probability[row]) / int(sizes[labels[row]]), first
    return found


_KINDS: dict[
    Kind, tuple[str, str]
] = {  # what the page calls several of them, and what it says of one
    "label": ("probable label errors", "is labeled {label}, probably {suggested}"),
    "duplicate": (
        "near duplicates across classes",
        "is labeled {label}, its near copy {suggested}",
    ),
    "outlier": ("outliers", "of {label} is far from everything"),
    "class": ("pairs of classes that overlap", "{label} and {suggested} overlap"),
}


def findings_table(snapshot: Snapshot, findings: Findings) -> str:
    """Write the findings as a table; the columns are described at the top of this file."""
    items = snapshot.items()

    def line(each: Finding) -> Sequence[object]:
        item, near = items[each.row], "|".join(items[row].path for row in each.neighbors)
        return each.row, item.path, item.label, each.kind, f"{each.score:.4f}", each.suggested, near

    return as_csv(
        ("row", "path", "label", "kind", "score", "suggested", "neighbors"),
        map(line, findings.found),
    )


def findings_contents(snapshot: Snapshot, findings: Findings) -> Contents:
    """Fill the page of findings: each with its score and the rows that disagree, with their
    distances."""
    groups = []
    for number, each in enumerate(findings.found, 1):
        words = _KINDS[each.kind][1].format(
            label=snapshot.items()[each.row].label, suggested=each.suggested
        )
        title = f"{number}, {each.kind}: {words}"
        groups.append(
            Group(number, (each.row, *each.neighbors), (each.score, *each.distances), title)
        )
    counts = Counter(each.kind for each in findings.found)
    facts = [(name, f"{counts[kind]:,}") for kind, (name, _) in _KINDS.items()]
    note = (
        "First of each group the item in question, with the score; then those that disagree, "
        "with their distance."
    )
    return Contents(
        "What to look at", facts, [*findings.words, note], groups, _SHOWN + 1, "Nothing was found."
    )


# -- decisions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corrected:
    """The data after decisions.

    Attributes:
        table: as text; of items that are neither files nor texts a list of names.
        arrays: where the data are an ``.npz``.
        changed: how many items have another label.
        dropped: how many are left out.
        trains: whether a run can be trained on the arrays or, where there are none, on the table.
    """

    table: str
    arrays: Mapping[str, np.ndarray] | None
    changed: int
    dropped: int
    trains: bool


def apply_decisions(snapshot: Snapshot, decisions: Path, *, new_labels: bool = False) -> Corrected:
    """Return the corrected table ``path,label``, and how many items were relabeled and dropped.

    Paths are those of the pictures' files, absolute; of items without files their names. Other
    columns are what the collection knows besides. Items without a label are left out. Of an
    ``.npz`` there are its arrays, too; a table of texts stays one.

    Args:
        snapshot: the collection that was reviewed.
        decisions: a table of ``path,label``. Paths are those of
            ``findings.csv``. An empty label drops the item; any other is a label, whatever it is.
        new_labels: whether a label may be one that no item has.
    """
    columns = read_columns(decisions)
    paths = columns.texts("path")
    if "label" not in columns.cells:
        raise DataError(f"{decisions}: " + unknown("column", "label", columns.cells))
    items, classes = snapshot.items(), snapshot.labels()
    # As tables hold paths: bytes that are no text are question marks there.
    shown = [item.path.encode(errors="replace").decode().strip() for item in items]
    held, rows = Counter(shown), {path: row for row, path in enumerate(shown)}
    labels, decided = [item.label for item in items], dict[int, int]()
    for line, (path, cell) in enumerate(zip(paths, columns.cells["label"], strict=True)):
        place, label = columns.place(line), "" if cell is None else as_given(str(cell).strip())
        path = as_given(path)
        if held[path] != 1:
            fault = (
                f"the collection holds it in {held[path]} places"
                if path in held
                else "the collection has no such"
            )
            raise DataError(
                f"{place}: {path!r} is no path to decide on: {fault}. Use the paths of "
                "findings.csv."
            )
        row = rows[path]
        if row in decided:
            raise DataError(
                f"{place}: {path!r} is already in {columns.unit} {decided[row]}. Decide once."
            )
        decided[row] = columns.lines[line]
        if label and not new_labels and label not in classes:
            raise DataError(
                f"{place}: {unknown('label', label, classes)} --new-labels allows others; an "
                "empty label drops the item."
            )
        labels[row] = label or None
    dropped = sum(labels[row] is None for row in decided)
    changed = sum(labels[row] not in (None, items[row].label) for row in decided)
    others = list(dict.fromkeys(name for item in items for name in item.metadata))

    def cells(item: Item, label: str) -> Sequence[object]:
        return (
            _file_or_name(snapshot, item),
            label,
            *(item.metadata.get(name, "") for name in others),
        )

    lines = (
        cells(item, label) for item, label in zip(items, labels, strict=True) if label is not None
    )
    table, arrays = as_csv(("path", "label", *others), lines, data=True), None
    now = {shown[row]: labels[row] for row in decided}
    trains = all(place.root is not None for place in snapshot.places)
    file = Path(snapshot.places[0].path if len(snapshot.places) == 1 else "")
    if not trains and file.is_file() and snapshot.pictures.access.allows(file):
        arrays = (
            _corrected_arrays(read_arrays(file), now) if file.suffix.lower() == ".npz" else None
        )
        if file.suffix.lower() in (".csv", ".tsv") and "text" in (read := read_columns(file)).cells:
            table, trains = _corrected_texts(read, now), True
    return Corrected(table, arrays, changed, dropped, trains or arrays is not None)


def _file_or_name(snapshot: Snapshot, item: Item) -> Path | str:
    return snapshot.places[item.place].file(item.path) or item.path


def _corrected_arrays(
    arrays: Mapping[str, np.ndarray], now: Mapping[str, str | None]
) -> Mapping[str, np.ndarray] | None:
    """Return arrays of feature vectors with the labels that rows have now, and without dropped
    ones."""
    key, named = (
        next(filter(arrays.__contains__, (f"{name}s", name)), "") for name in ("label", "name")
    )
    if not key:
        return None
    given, classes, count = arrays[key], arrays.get("classes", np.array(0)), len(arrays[key])
    numbered = (
        given.dtype.kind in "iu" and classes.dtype.kind in "US"
    )  # as `vicinal embed` writes them
    labels = (classes[given] if numbered else given).astype(str).tolist()
    names = arrays[named].astype(str).tolist() if named else [f"row {row}" for row in range(count)]
    kept = [row for row, name in enumerate(names) if now.get(name.strip(), "") is not None]
    new = np.array([now.get(names[row].strip()) or labels[row] for row in kept])
    if given.dtype.kind in "iu":
        # As text, 10 comes before 2, and other classes would be for testing.
        with suppress(ValueError, OverflowError):
            numbers = new.astype(given.dtype)
            new = numbers if numbers.astype(str).tolist() == new.tolist() else new
    found = {
        name: array[kept] if array.shape[:1] == (count,) else array
        for name, array in arrays.items()
    }
    return {name: array for name, array in found.items() if name != "classes"} | {key: new}


def _corrected_texts(columns: Columns, now: Mapping[str, str | None]) -> str:
    """Return a table of texts with the labels that rows have now, and without dropped ones."""
    names, lines = text_names(columns, columns.texts("text")), list[list[object]]()
    for row, name in enumerate(names):
        if (label := now.get(name.strip(), columns.cells["label"][row])) is not None:
            lines.append(
                [
                    label if column == "label" else cells[row]
                    for column, cells in columns.cells.items()
                ]
            )
    return as_csv(list(columns.cells), lines, data=True)


# -- what to label next ---------------------------------------------------------------------------

_REACH = 60  # neighbors that an item can stand for
_PAIRS = 5  # nearest labeled rows of each, by which distances are calibrated


@dataclass(frozen=True)
class Suggestions:
    """Items of a pool to label next, best first.

    Attributes:
        rows: of the pool.
        gains: how many items of the pool each is expected to add to those whose nearest labeled one
            is of their class.
        known: probability that the nearest labeled item, before any of these, has the item's class.
        expected: mean of ``known`` over the pool, before and after.
    """

    rows: Int[np.ndarray, "k"]
    gains: Float[np.ndarray, "k"]
    known: Float[np.ndarray, "k"]
    expected: tuple[float, float]


def suggest(
    pool: Float[np.ndarray, "n d"],
    vectors: Float[np.ndarray, "m d"],
    labels: Int[np.ndarray, "m"],
    k: int,
    *,
    metric: Metric = "euclidean",
) -> Suggestions:
    """Choose the items of a pool whose labels would let most of the pool find its class at the
    nearest labeled item.

        F(S) = Σ_j max_{i ∈ S} p(d_ij)

    p is the probability that two items at a distance are of one class, by logistic regression on
    the labeled rows and their nearest. F, the expected number of hits at rank 1, is monotone and
    submodular, so that taking the largest gain each time reaches 1 - 1/e of the best (Nemhauser,
    Wolsey and Fisher 1978). A gain is large where the nearest label is far (uncertainty), many
    others are near, and nothing chosen before is (diversity).

    Args:
        pool: vectors without labels.
        vectors: the labeled ones.
        labels: their classes.
        k: how many to choose.
        metric: by which vectors are near.

    >>> line = np.array([[0.0], [0.1], [5.0], [5.1], [5.2]], dtype=np.float32)
    >>> known = np.array([[0.0], [0.2], [20.0], [20.2]], dtype=np.float32)
    >>> suggest(line, known, np.array([0, 0, 1, 1]), 1).rows.tolist()
    [3]
    """
    if not 1 <= k <= len(pool):
        raise DataError(
            f"of {len(pool):,} items in the pool 1 to {len(pool):,} can be chosen; got --k {k}."
        )
    rows, known = torch.from_numpy(np.array(pool)), torch.from_numpy(np.array(vectors))
    probability = _calibrated(known, torch.from_numpy(np.asarray(labels, np.int64)), metric)
    covered = probability(neighbors(rows, 1, gallery=known, metric=metric).distances[:, 0].numpy())
    before = covered.copy()
    near = neighbors(rows, min(_REACH, max(1, len(pool) - 1)), metric=metric)
    ids = np.concatenate([np.arange(len(pool))[:, None], near.ids.numpy()], axis=1)
    shares = probability(np.concatenate([np.zeros((len(pool), 1)), near.distances.numpy()], axis=1))
    shares[ids < 0] = 0
    # By candidate: the rows that have it among their nearest, which need not be its own nearest.
    order = np.argsort(ids.ravel(), kind="stable")
    rows_of, values = order // ids.shape[1], shares.ravel()[order]
    starts = np.searchsorted(ids.ravel()[order], np.arange(len(pool) + 1))
    chosen, gains = list[int](), list[float]()
    for _ in range(k):
        gain = np.add.reduceat(np.maximum(values - covered[rows_of], 0), starts[:-1])
        gain[chosen] = -1
        best = int(gain.argmax())
        chosen.append(best)
        gains.append(float(gain[best]))
        part = slice(starts[best], starts[best + 1])
        covered[rows_of[part]] = np.maximum(covered[rows_of[part]], values[part])
    return Suggestions(
        np.array(chosen),
        np.array(gains),
        before[chosen],
        (float(before.mean()), float(covered.mean())),
    )


def _calibrated(
    vectors: Tensor, labels: Tensor, metric: Metric
) -> Callable[[Float[np.ndarray, "*s"]], Float[np.ndarray, "*s"]]:
    """Fit the probability that two items at a distance are of one class, on labeled rows and their
    nearest."""
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    if len(labels) < 2:
        raise DataError(
            f"distances are calibrated on labeled items; got {len(labels)}. Index some with a "
            "class."
        )
    found = neighbors(vectors, min(_PAIRS, len(labels) - 1), metric=metric)
    same = (labels[found.ids] == labels.unsqueeze(1)).flatten().numpy()
    far = found.distances.flatten().numpy().astype(np.float64)
    unit = float(far.mean()) or 1.0
    # One pair each of which the answer is known, so that few labels, or all of one class, leave a
    # curve.
    far, same = np.append(far, [0.0, 2 * far.max() + unit]) / unit, np.append(same, [True, False])
    model = LogisticRegression(C=1e4).fit(far[:, None], same)
    slope, offset = min(float(model.coef_[0, 0]), -1e-6), float(model.intercept_[0])
    return lambda distances: np.asarray(expit(slope * distances / unit + offset))


def choose(pool: Snapshot, known: Snapshot, k: int) -> Suggestions:
    """Choose ``k`` items of a pool, given the labeled items of a collection of the same model."""
    rows, _, labels = labeled(known)
    return suggest(pool.vectors(), known.vectors()[rows], labels, k, metric=pool.metric)


def suggestions_table(pool: Snapshot, chosen: Suggestions) -> str:
    """Write what to label next as ``path,label,known,gain``, best first; labels are for a person to
    fill in.

    Paths are those of a corrected table, so that the lines can be added to one.
    """
    chosen_rows = zip(
        chosen.rows.tolist(), chosen.known.tolist(), chosen.gains.tolist(), strict=True
    )
    lines = (
        (_file_or_name(pool, pool.items()[row]), "", f"{known:.4f}", f"{gain:.3f}")
        for row, known, gain in chosen_rows
    )
    return as_csv(("path", "label", "known", "gain"), lines)


def suggestions_contents(pool: Snapshot, chosen: Suggestions) -> Contents:
    """Fill the page of what to label next."""
    before, after = (f"{share:.1%}" for share in chosen.expected)
    facts = [
        ("to label", f"{len(chosen.rows):,}"),
        ("expected hits before", before),
        ("with these labels", after),
    ]
    lead = [
        "A hit is an item of the pool whose nearest labeled one is of its class; probabilities "
        "are calibrated on "
        "distances of labeled items.",
        "What adds most hits comes first. The number below a picture is the probability that its "
        "class is known now.",
    ]
    group = Group(
        1, chosen.rows.tolist(), chosen.known.tolist(), f"{len(chosen.rows):,} items to label"
    )
    return Contents("What to label next", facts, lead, [group], TILES, "")
