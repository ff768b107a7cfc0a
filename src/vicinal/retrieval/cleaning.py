"""What is probably wrong in a labeled collection.

A label is judged by all other rows: by how near the row is to each class's mean, in the scatter
within classes, and by the labels of its nearest neighbors. Both leave the row out, so that it
cannot vouch for itself. The two are weighed against one another, and turned into probabilities, by
the likelihood of the labels under a share of wrong ones, which is estimated with them.
``experiments/cleaning.md`` has the measurements behind these choices.

``findings.csv`` has the columns ``row,path,label,kind,score,suggested,neighbors``, by falling
score: the row and path of the collection, its label, ``label``, ``duplicate``, ``outlier`` or
``class``, a score in [0, 1], the label that it probably should have (of a duplicate and of a class,
the other one's), and the paths of the rows that disagree, separated by ``|``. ``decisions``
applies what a person decides on them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.data.records import Progress
from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.neighbors import neighbors
from vicinal.retrieval.collection import Snapshot, drawn
from vicinal.retrieval.duplicates import (
    calibrate_likeness,
    collection_views,
    distinct_pairs,
    duplicate_pairs,
)
from vicinal.retrieval.items import Rows, Vector, Vectors
from vicinal.retrieval.listing import list_again, own_place
from vicinal.retrieval.pages import Group, Page, as_csv
from vicinal.run_directory import RunDirectory

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
# of the median distance to the nearest: vectors nearer than that are taken for copies
_NEAR_COPY = 0.25


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

    wrong: Vector
    suggested: Rows
    probability: Vector
    noise: float
    ids: Int[np.ndarray, "n k"]
    distances: Vectors

    def evidence(self, row: int, places: Rows | slice) -> tuple[Rows, list[float]]:
        """Return some of the nearest of a row, and their distances."""
        return self.ids[row, places], self.distances[row, places].tolist()


class _Evidence:
    """Logits of all classes for some rows, each computed as if the row were not there."""

    def __init__(
        self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, "n"], classes: int, metric: Metric
    ) -> None:
        found = neighbors(vectors, min(NEIGHBORS, len(vectors) - 1), metric=metric)
        self.ids = found.ids
        self.distances = found.distances
        self.labels = labels
        self.classes = classes
        rows = vectors.double() - vectors.double().mean(dim=0)
        self.sizes = torch.bincount(labels, minlength=classes).double()
        sums = rows.new_zeros(classes, rows.shape[1]).index_add_(0, labels, rows)
        means = sums / self.sizes.unsqueeze(1)
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
        rows = self.rows[at]
        own = self.labels[at]
        size = self.sizes[own]
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
    vectors: Vectors,
    labels: Rows,
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
        raise DataError(
            f"labels are judged by other rows; got {len(labels)} rows of {classes} classes. Index "
            "more rows of at least 2 classes."
        )
    given = torch.from_numpy(np.asarray(labels, np.int64))
    evidence = _Evidence(torch.from_numpy(np.array(vectors)), given, classes, metric)
    judged = evidence.sizes[given] > 1
    order = torch.from_numpy(drawn(len(given), len(given)))
    some = order[judged[order]][: max(64, min(_FITTED, 2 * _LOGITS // classes))]
    size = max(1, _LOGITS // classes)
    logits = [evidence(part) for part in torch.split(some, size)]
    scales, noise = _fitted(torch.cat(logits, dim=1), given[some])
    verdicts = list[Tensor]()
    for at in torch.split(torch.arange(len(given)), size):
        own_class = given[at].unsqueeze(1)
        shares = torch.einsum("s,sbc->bc", scales, evidence(at)).softmax(dim=1)
        own = shares.gather(1, own_class).squeeze(1)
        error = noise * (1 - own) / (classes - 1)
        wrong = error / ((1 - noise) * own + error).clamp(min=1e-300)
        best = shares.scatter(1, own_class, -1.0).max(dim=1)
        wrong = torch.where(judged[at], wrong, 0)
        verdicts.append(torch.stack([wrong, best.indices.double(), best.values]))
        progress(int(at[-1]) + 1)
    wrong, suggested, probability = torch.cat(verdicts, dim=1).numpy()
    near = evidence.ids.numpy(), evidence.distances.numpy()
    return Verdicts(wrong, suggested.astype(int), probability, noise, *near)


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
    """Something to look at: the row, what may be wrong (label, duplicate, outlier or class), its
    probability, the label that would be right, and the rows that are evidence."""

    row: int
    kind: str
    score: float
    suggested: str
    neighbors: Sequence[int]
    distances: Sequence[float]


def find_issues(
    snapshot: Snapshot,
    features: Vectors | None = None,
    progress: Progress = lambda done: None,
) -> tuple[list[Finding], Page]:
    """Find probable label errors, copies across classes, outliers and ambiguous classes among the
    labeled items; return them by falling score, and their page.

    Args:
        snapshot: the collection.
        features: of all items, by which to judge in the place of the embeddings; see
            `backbone_features`.
        progress: called with how many rows are done.
    """
    rows, names, labels = snapshot.labeled()
    vectors = np.array((snapshot.vectors if features is None else features)[rows])
    metric: Metric = snapshot.metric if features is None else "euclidean"
    verdicts = judge_labels(vectors, labels, metric=metric, progress=progress)
    copies, words = _copies(snapshot, rows, labels, names, verdicts)
    apart = verdicts if features is None else by_direction(verdicts, vectors)
    found = [
        Finding(int(rows[row]), kind, float(score), suggested, rows[near].tolist(), far)
        for row, kind, score, suggested, near, far in (
            *_suspects(verdicts, labels, names, apart),
            *copies,
        )
    ]
    found.sort(key=lambda each: (-each.score, each.row, each.kind))
    wrong = sum(each.kind == "label" for each in found)
    share = f"{wrong:,} of {len(rows):,} labels are probably wrong, judged by all other items."
    return found, _page(snapshot, found, [share, words])


def backbone_features(
    run: RunDirectory, snapshot: Snapshot, device: torch.device | None = None
) -> np.ndarray | None:
    """Return the backbone's features of all items, where the run was trained on some of them; else
    None.

    An embedding that was trained on wrong labels has learned to vouch for them; what lies before
    the head has less.
    """
    if own_place(run) not in (place.path for place in snapshot.places):
        return None
    encoder = Encoder.load(run, device).stream("gallery")
    found = dict[int, np.ndarray]()
    for number, place in enumerate(snapshot.places):
        if place.root is not None:
            snapshot.access.require(Path(place.root))
        listing = list_again(run, place.path, place.split, place.images)
        positions = {entry.path: position for position, entry in enumerate(listing.entries)}
        rows = {row: item.path for row, item in enumerate(snapshot.items) if item.place == number}
        if missing := [path for path in rows.values() if path not in positions]:
            raise DataError(
                f"{missing[0]} was indexed, but is no longer in {place.path}. Index it again."
            )
        records = listing.records(np.array([positions[path] for path in rows.values()], np.int64))
        found |= dict(zip(rows, encoder.embed(records, features=True).vectors.numpy(), strict=True))
    return np.stack([found[row] for row in range(len(snapshot))])


def _suspects(
    verdicts: Verdicts, labels: Rows, names: Sequence[str], apart: Verdicts
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of findings by neighbors, ``apart`` those that tell of outliers.

    Rows whose label is probably wrong come with their nearest of other classes, the suggested one
    first. Outliers are rows far from their nearest ones, by Chauvenet's criterion on the logarithm
    of the mean distance; the score is 1 - n p: p is the share of a normal distribution, of the same
    median and median deviation, beyond the row, so n p such rows were to be expected. Pairs of
    classes that overlap are each shown by the row that is most probably of the other class.
    """
    from scipy.stats import norm

    for row in np.flatnonzero(verdicts.wrong >= _LIKELY).tolist():
        suggested = verdicts.suggested[row]
        near = labels[verdicts.ids[row]]
        others = np.flatnonzero(near != labels[row])
        others = others[np.argsort(near[others] != suggested, kind="stable")][:_SHOWN]
        evidence = verdicts.evidence(row, others)
        yield row, "label", verdicts.wrong[row], names[suggested], *evidence
    far = remoteness(apart)
    scores = 1 - np.minimum(1, len(far) * norm.sf(far))
    for row in np.flatnonzero(scores >= _FAR).tolist():
        yield row, "outlier", scores[row], "", *apart.evidence(row, slice(_SHOWN))
    for score, row in class_overlaps(verdicts, labels).values():
        if score >= _OVERLAP:
            other = verdicts.suggested[row]
            close = np.flatnonzero(labels[verdicts.ids[row]] == other)[:_SHOWN]
            yield row, "class", min(1.0, score), names[other], *verdicts.evidence(row, close)


def _copies(
    snapshot: Snapshot, rows: Rows, labels: Rows, names: Sequence[str], verdicts: Verdicts
) -> tuple[list[tuple[Any, ...]], str]:
    """Return the values of findings for near copies of different classes, the more doubtful one
    first, and how they were found.

    Pictures are compared as `vicinal dedupe` does; where there are none, or none that can be
    compared, vectors. The score falls from 1, equal, to one half at the limit.
    """
    try:
        pictured, views = collection_views(snapshot)
        limit, words = calibrate_likeness(snapshot, pictured, views)
    except DataError:
        limit = _NEAR_COPY * float(np.median(verdicts.distances[:, 0]))
        words = (
            f"Vectors within {limit:.4g}, {_NEAR_COPY:g} of the median distance to the "
            "nearest, are near copies."
        )
        near = verdicts.distances <= limit
        ends = np.stack([np.nonzero(near)[0], verdicts.ids[near]])
        ends, distances = distinct_pairs(ends, verdicts.distances[near])
    else:
        ends, distances = duplicate_pairs(snapshot, pictured, views, limit)
        known = np.isin(ends, rows).all(axis=0)
        ends = np.searchsorted(rows, ends[:, known])
        distances = distances[known]
    found = []
    for pair, far in zip(ends.T.tolist(), distances.tolist(), strict=True):
        one, other = sorted(pair, key=lambda row: -verdicts.wrong[row])
        if labels[one] != labels[other]:
            score = 1 - far / limit / 2 if limit else 1.0
            found.append((one, "duplicate", score, names[labels[other]], [other], [far]))
    return found, words


def by_direction(verdicts: Verdicts, features: Vectors) -> Verdicts:
    """Return verdicts with neighbors of the features' directions: their length says little about
    what is unusual."""
    unit = torch.nn.functional.normalize(torch.from_numpy(features), dim=1)
    near = neighbors(unit, verdicts.ids.shape[1])
    return replace(verdicts, ids=near.ids.numpy(), distances=near.distances.numpy())


def remoteness(verdicts: Verdicts) -> Vector:
    """Return how far each row is from its 10 nearest, in standard deviations of a normal
    distribution; 0 if all alike.

    The logarithm of the mean distance is compared with its median, in units of 1.4826 times its
    median deviation.
    """
    reach = np.log(verdicts.distances[:, :_REMOTE].astype(np.float64).mean(axis=1).clip(min=1e-300))
    apart = reach - np.median(reach)
    spread = 1.4826 * float(np.median(np.abs(apart)))
    return apart / spread if spread > 0 else np.zeros(len(reach))


def class_overlaps(verdicts: Verdicts, labels: Rows) -> dict[frozenset[int], tuple[float, int]]:
    """Return by pair of classes the mean probability of the other class in both, added up, and a
    row between them.

    1 is where nothing parts them; rows whose label is probably wrong are not counted.
    """
    sound = np.flatnonzero(verdicts.wrong < _LIKELY)
    sizes = np.bincount(labels[sound])
    found = dict[frozenset[int], tuple[float, int]]()
    for row in sound[np.argsort(-verdicts.probability[sound], kind="stable")].tolist():
        pair = frozenset((int(labels[row]), int(verdicts.suggested[row])))
        score, first = found.get(pair, (0.0, row))
        found[pair] = score + float(verdicts.probability[row]) / int(sizes[labels[row]]), first
    return found


# what the page calls several of a kind, and what it says of one
_KINDS = {
    "label": ("probable label errors", "is labeled {label}, probably {suggested}"),
    "duplicate": (
        "near duplicates across classes",
        "is labeled {label}, its near copy {suggested}",
    ),
    "outlier": ("outliers", "of {label} is far from everything"),
    "class": ("pairs of classes that overlap", "{label} and {suggested} overlap"),
}


def _page(snapshot: Snapshot, found: Sequence[Finding], words: Sequence[str]) -> Page:
    """Fill the page of findings: each with its score and the rows that disagree, with their
    distances. The table's columns are described at the top of this file."""
    items = snapshot.items
    groups = []
    lines = []
    for number, each in enumerate(found, 1):
        item = items[each.row]
        said = _KINDS[each.kind][1].format(label=item.label, suggested=each.suggested)
        rows = [each.row, *each.neighbors]
        groups.append(Group(rows, [each.score, *each.distances], f"{number}, {each.kind}: {said}"))
        near = "|".join(items[row].path for row in each.neighbors)
        score = f"{each.score:.4f}"
        lines.append((each.row, item.path, item.label, each.kind, score, each.suggested, near))
    counts = Counter(each.kind for each in found)
    facts = [(name, f"{counts[kind]:,}") for kind, (name, _) in _KINDS.items()]
    note = (
        "First of each group the item in question, with the score; then those that disagree, "
        "with their distance."
    )
    columns = ("row", "path", "label", "kind", "score", "suggested", "neighbors")
    table = as_csv(columns, lines)
    return Page("What to look at", facts, [*words, note], groups, _SHOWN + 1, table)
