"""The scores of an embedding: neighbors are searched once, retrieval is scored as they arrive,
clusters beside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.clustering import cluster
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.neighbors import Gallery, Hits, Neighbors, worth_counting
from vicinal.evaluation.retrieval import (
    WHOLE,
    Lone,
    QueryScores,
    Same,
    query_scores,
    ranks_needed,
    relevant_counts,
)
from vicinal.evaluation.verification import verify

_CLUSTERING = ("nmi", "ami", "f1")


def evaluate(
    embeddings: Float[Tensor, "q d"] | Float[np.ndarray, "q d"],
    labels: Shaped[Tensor, "q *c"] | Shaped[np.ndarray, "q *c"],
    *,
    recalls: Sequence[int] = (1, 2, 4, 8),
    top_percent: bool = False,
    gallery: Float[Tensor, "g d"] | Float[np.ndarray, "g d"] | None = None,
    gallery_labels: Shaped[Tensor, "g *c"] | Shaped[np.ndarray, "g *c"] | None = None,
    normalize: bool = False,
    metric: Metric = "euclidean",
    lone: Lone = "exclude",
    metrics: Sequence[str] | None = None,
    same: Same = None,
    sizes: Sequence[int] = (),
    clustering: bool = True,
    restarts: int = 3,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> "Scores":
    """Score an embedding, in fractions: ``recall@K``, ``map@r``, ``r_precision``, and ``nmi``,
    ``ami``, ``f1``.

    The last three are means over runs of k-means; ``nmi_spread``, ``ami_spread`` and ``f1_spread``
    are their standard deviations, what another seed would change. Defaults are those of a run,
    which scores alike.

    ``metrics`` names other scores instead: ``recall@K`` or ``cmc@K``, ``precision@K``, ``map@r``,
    ``r_precision``, ``map`` (average precision of the whole ranking), ``mrr`` (reciprocal rank of
    the first right one), ``tar@far=F`` and ``eer`` over all pairs, ``nmi``, ``ami`` and ``f1``.
    What is returned is a dictionary of means that also has tables by query and by class, and, with
    ``sizes``, the scores of smaller embeddings.

    Each row is sought among the others, or, with a gallery, in that. Clustering takes the rows
    (queries) alone, into as many clusters as they have classes; with ``normalize`` or ``"cosine"``
    it takes them scaled to length 1.

    Args:
        embeddings: rows to evaluate, tensor or array; NaN and infinity are rejected with their row
            numbers.
        labels: their classes, integers; with ``same`` whatever it compares, such as a row of
            numbers each.
        recalls: the K of Recall@K (``vicinal.evaluation.retrieval`` has each data set's published
            ones).
        top_percent: also ``recall@1%``, Recall@K with K = ⌊g/100⌋ + 1 of a gallery of g rows, as
            papers on cross-view matching count it.
        gallery: rows to find neighbors among; None for leave-one-out.
        gallery_labels: their classes.
        normalize: scale all rows to length 1 first; a zero row stays zero.
        metric: distance by which neighbors are near.
        lone: whether queries that have nothing to find are left out (``"exclude"``) or wrong
            (``"count"``).
        metrics: the scores to compute; None for those above.
        same: a function of two tensors of labels, which broadcast, that says which belong together,
            in place of
            equality: labels at another level of a hierarchy, or several for each row. There are no
            clusters then.
        sizes: also score the first so many numbers of each embedding, as ``scores.by_size[size]``.
        clustering: whether to run k-means.
        restarts: runs of k-means behind a mean; a single one has no spread.
        seed: of k-means.
        device: where to compute; by default a GPU where there is one, as runs do, so that both
            score alike.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError(
            "a gallery comes with its labels, got one without the other. Pass both or neither."
        )
    rows = _tensor(embeddings)
    device = _device(rows) if device is None else device
    rows, own = _checked(rows, labels, "embeddings", device, matrices=same is not None)
    others = theirs = None
    if gallery is not None and gallery_labels is not None:
        others, theirs = _checked(
            _tensor(gallery), gallery_labels, "gallery", device, matrices=same is not None
        )
    groups = tuple(
        name for name in (_CLUSTERING if metrics is None else metrics) if name in _CLUSTERING
    )
    pairs = [name for name in metrics or () if name.startswith("tar@far=") or name == "eer"]
    ranked = _ranked(recalls, top_percent=top_percent) if metrics is None else metrics
    ranked = [name for name in ranked if name not in (*groups, *pairs)]
    if same is not None and metrics is not None and groups:
        raise ConfigError(
            f"clusters are compared with classes, but `same` has none, got metrics {groups}."
        )
    if pairs and metric == "poincare":
        raise ConfigError(
            f"{pairs[0]} is measured by Euclidean or cosine distance, got metric='poincare'."
        )

    def score(size: int) -> Scores:
        x = rows[:, :size]
        y = None if others is None else others[:, :size]
        if normalize or (metric == "cosine" and pairs):
            x = to_unit_length(x, dim=1)
            y = None if y is None else to_unit_length(y, dim=1)
        found = Scores()
        if ranked:
            found = Scores(_retrieve(x, own, y, theirs, ranked, metric, lone=lone, same=same))
        if pairs:
            fars = [float(name.removeprefix("tar@far=")) for name in pairs if name != "eer"]
            verified = verify(x, own, gallery=y, gallery_labels=theirs, fars=fars, same=same)
            found |= {
                name: verified[name if name == "eer" else f"tar@far={float(name[8:]):g}"]
                for name in pairs
            }
        if groups and clustering and same is None:
            x = to_unit_length(x, dim=1) if metric == "cosine" else x
            means, spread = cluster(x, own, seed=seed, restarts=restarts)
            found |= {name: means[name] for name in groups}
            found |= {f"{name}_spread": value for name, value in spread.items() if metrics is None}
        return found

    for size in sizes:
        if not 1 <= size <= rows.shape[1]:
            raise ConfigError(
                f"sizes are from 1 to the {rows.shape[1]} numbers of an embedding, got {size}."
            )
    scores = score(rows.shape[1])
    scores.by_size = {size: score(size) for size in sizes}
    return scores


class Scores(dict[str, float]):
    """Mean scores by name, with the tables behind them.

    Attributes:
        queries: the scores of each query, where any score is one of queries.
        by_size: the scores of smaller embeddings.

    >>> rows, labels = np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 0])
    >>> scores = evaluate(rows, labels, metrics=["recall@1", "map@r"])
    >>> scores["map@r"], scores.per_query["query"].tolist(), scores.per_class["queries"].tolist()
    (1.0, [0, 1, 2], [3])
    """

    def __init__(self, queries: QueryScores | None = None) -> None:
        super().__init__({} if queries is None else queries.means())
        self.queries = queries
        self.by_size: dict[int, Scores] = {}

    @property
    def per_query(self) -> dict[str, np.ndarray]:
        """A table with a row for each query that counts: ``query`` (its position), ``label`` and
        each score."""
        if self.queries is None or self.queries.rows is None:
            return {}
        columns = {"query": self.queries.rows, "label": self.queries.labels, **self.queries.scores}
        return {name: column.cpu().numpy() for name, column in columns.items()}

    @property
    def per_class(self) -> dict[str, np.ndarray]:
        """A table with a row for each class: ``label``, ``queries`` (how many) and the mean of each
        score."""
        if self.queries is None or self.queries.labels.ndim > 1:
            return {}
        table = self.queries.by_class()
        return {
            name: part / table["queries"] if name in self.queries.scores else part
            for name, part in table.items()
        }


@dataclass(frozen=True)
class Measured:
    """What was measured of some embedded records.

    Attributes:
        scores: those of ``evaluate``, without spreads.
        queries: the scores of each query, Recall@1 among them.
        spread: standard deviation of ``nmi``, ``ami`` and ``f1`` over the seeds of k-means.
    """

    scores: dict[str, float]
    queries: QueryScores
    spread: dict[str, float]


def measure(
    embedded: Embedded,
    *,
    recalls: Sequence[int],
    clustering: bool,
    seed: int = 0,
    restarts: int = 3,
) -> Measured:
    """Score embedded records as ``evaluate`` does: leave-one-out, or queries in a gallery where
    they have such roles.

    Where texts are sought among pictures, ``image_to_text_recall@K`` is the other way.

    Queries that are sought in a gallery are clustered only where there are two of a class on
    average. With one of each, as of two views of a place, every query is a cluster of its own: NMI
    and F1 of 1, whatever the network.
    """
    queries, gallery = embedded.roles()
    vectors, labels = _checked(
        embedded.vectors, embedded.labels, "embeddings", _device(embedded.vectors)
    )
    rows = vectors[queries]
    own = labels[queries]
    names = _ranked(tuple(dict.fromkeys((*recalls, 1))), top_percent=gallery is not None)
    if gallery is None:
        found = _retrieve(rows, own, None, None, names, embedded.metric)
    else:
        theirs = vectors[gallery], labels[gallery]
        found = _retrieve(rows, own, *theirs, names, embedded.metric)
        clustering = clustering and 2 * len(torch.unique(own)) <= len(queries)
    scores = {
        name: mean for name, mean in found.means().items() if name != "recall@1" or 1 in recalls
    }
    # So far, texts have asked for pictures.
    if gallery is not None and embedded.records.captions is not None:
        names = [f"recall@{k}" for k in recalls]
        back = _retrieve(*theirs, rows, own, names, embedded.metric).means()
        scores |= {f"image_to_text_{name}": value for name, value in back.items()}
    clustered, spread = cluster(rows, own, seed=seed, restarts=restarts) if clustering else ({}, {})
    return Measured(scores | clustered, found, spread)


def _ranked(recalls: Sequence[int], *, top_percent: bool) -> list[str]:
    """Return the names of the usual scores of retrieval."""
    most = ["recall@1%"] if top_percent else []
    return [*(f"recall@{k}" for k in recalls), *most, "map@r", "r_precision"]


def _retrieve(
    rows: Tensor,
    own: Tensor,
    others: Tensor | None,
    theirs: Tensor | None,
    names: Sequence[str],
    metric: Metric,
    *,
    lone: Lone = "exclude",
    same: Same = None,
) -> QueryScores:
    """Search neighbors once, as many as the scores of these names look at, and score them."""
    held = rows if others is None else others
    percent = len(held) // 100 + 1  # CVM-Net's code (Hu et al. 2018) and HER's
    asked = {name: f"recall@{percent}" if name == "recall@1%" else name for name in names}
    ends = [name.partition("@")[2] for name in asked.values()]
    relevant = relevant_counts(own, theirs, same)
    ranks = ranks_needed(relevant, [int(end) for end in ends if end.isdigit()])
    if set(WHOLE) & set(names):
        ranks = len(held)
    among = Gallery.of(rows, others, metric)
    sought = None if others is None else rows
    chunks: Iterable[Neighbors] | Iterable[Hits] = among.search(sought, ranks)
    plain = same is None and own.ndim == 1 and metric != "poincare"
    if plain and worth_counting(int(relevant.max()), ranks, held):
        chunks = among.hits(sought, own, own if theirs is None else theirs, ranks)
    metrics = list(dict.fromkeys(asked.values()))
    found = query_scores(chunks, own, theirs, lone=lone, metrics=metrics, same=same)
    return replace(found, scores={name: found.scores[one] for name, one in asked.items()})


def _device(rows: Tensor) -> torch.device | str:
    return "cuda" if rows.device.type == "cpu" and torch.cuda.is_available() else rows.device


def _tensor(rows: Tensor | np.ndarray) -> Tensor:
    return (
        rows
        if isinstance(rows, Tensor)
        else torch.from_numpy(np.require(rows, requirements=["C", "W"]))
    )


def _checked(
    rows: Tensor,
    labels: Tensor | np.ndarray,
    name: str,
    device: torch.device | str,
    *,
    matrices: bool = False,
) -> tuple[Tensor, Tensor]:
    if len(rows) == 0 or len(rows) != len(labels):
        raise DataError(
            f"each row needs a label, got {len(rows)} rows of {name} and {len(labels)} labels."
        )
    if isinstance(labels, np.ndarray) and labels.dtype.kind in ("biuf" if matrices else "iu"):
        labels = torch.from_numpy(
            labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
        )
    if isinstance(labels, np.ndarray) or (
        not matrices and (labels.is_floating_point() or labels.is_complex())
    ):
        advice = "Number the classes, with numpy.unique(labels, return_inverse=True) for example."
        raise DataError(
            f"labels must be integers, got {labels.dtype} for those of {name}. {advice}"
        )
    exact = torch.promote_types(rows.dtype, torch.float32)  # half precision is computed as float32
    return rows.detach().to(device, exact), labels.to(
        device, labels.dtype if matrices else torch.long
    )
