"""The scores of an embedding: neighbors are searched once, retrieval is scored as they arrive,
clusters beside."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import normalize as to_unit_length

from vicinal import parallel
from vicinal.distances import Metric
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.clustering import cluster
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.neighbors import Gallery
from vicinal.evaluation.retrieval import (
    WHOLE,
    QueryScores,
    Same,
    query_scores,
    ranks_needed,
    some_relevant,
)
from vicinal.evaluation.verification import verify
from vicinal.tuples import multi_hot

_CLUSTERING = ("nmi", "ami", "f1")
_FIRST = 64  # neighbors among which most queries have a right one


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
    metrics: Sequence[str] | None = None,
    same: Same = None,
    clustering: bool = True,
    restarts: int = 3,
    seed: int = 0,
    device: torch.device | str | None = None,
    together: bool = False,
) -> "Scores":
    """Score an embedding, in fractions: ``recall@K``, ``map@r``, ``r_precision``, and ``nmi``,
    ``ami``, ``f1``.

    The last three are means over runs of k-means; ``spread`` of the result has their standard
    deviations, what another seed would change. Defaults are those of a run, which scores alike.

    ``metrics`` names other scores instead: ``recall@K`` or ``cmc@K``, ``precision@K``, ``map@r``,
    ``r_precision``, ``map`` (average precision of the whole ranking), ``mrr`` (reciprocal rank of
    the first right one), ``tar@far=F`` and ``eer`` over all pairs, ``nmi``, ``ami`` and ``f1``.
    What is returned is a dictionary of means that also has tables by query and by class.

    Each row is sought among the others, or, with a gallery, in that. Clustering takes the rows
    (queries) alone, into as many clusters as they have classes; with ``normalize`` or ``"cosine"``
    it takes them scaled to length 1.

    Args:
        embeddings: rows to evaluate, tensor or array; NaN and infinity are rejected with their row
            numbers.
        labels: their classes, integers; a matrix of zeros and ones, one column for each class,
            where rows have several and those that share one belong together, which has no clusters;
            with ``same`` what it compares.
        recalls: the K of Recall@K (``vicinal.evaluation.retrieval`` has each data set's published
            ones).
        top_percent: also ``recall@1%``, Recall@K with K = ⌊g/100⌋ + 1 of a gallery of g rows, as
            papers on cross-view matching count it.
        gallery: rows to find neighbors among; None for leave-one-out.
        gallery_labels: their classes.
        normalize: scale all rows to length 1 first; a zero row stays zero.
        metric: distance by which neighbors are near.
        metrics: the scores to compute; None for those above.
        same: a function of two tensors of labels, which broadcast, that says which belong together,
            in place of equality: labels at another level of a hierarchy. There are no clusters
            then.
        clustering: whether to run k-means.
        restarts: runs of k-means behind a mean; a single one has no spread.
        seed: of k-means.
        device: where to compute; by default a GPU where there is one, as runs do, so that both
            score alike.
        together: whether all processes of a ``torchrun`` call this with equal rows. Each ranks its
            part of the queries and clusters its part of the rows, and all get all scores.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ConfigError(
            "a gallery comes with its labels, got one without the other. Pass both or neither."
        )
    rows, own = _checked(embeddings, labels, "embeddings", device, same)
    others = theirs = None
    if gallery is not None and gallery_labels is not None:
        others, theirs = _checked(gallery, gallery_labels, "gallery", rows.device, same)
    most = ["recall@1%"] if top_percent else []
    usual = [*(f"recall@{k}" for k in recalls), *most, "map@r", "r_precision", *_CLUSTERING]
    asked = usual if metrics is None else metrics
    groups = [name for name in asked if name in _CLUSTERING]
    fars = {name: float(name[8:]) for name in asked if name.startswith("tar@far=")}
    pairs = [name for name in asked if name in fars or name == "eer"]
    ranked = [name for name in asked if name not in (*groups, *pairs)]
    one_class = same is None and own.ndim == 1
    if not one_class and metrics is not None and groups:
        raise ConfigError(
            "clusters are compared with classes, one for each row: not with `same`, and not with "
            f"several labels; got metrics {groups}."
        )
    if pairs and metric == "poincare":
        raise ConfigError(
            f"{pairs[0]} is measured by Euclidean or cosine distance, got metric='poincare'."
        )
    if normalize:
        rows = to_unit_length(rows, dim=1)
        others = None if others is None else to_unit_length(others, dim=1)
    queries = QueryScores(own, {}, torch.arange(len(own)))
    if ranked:
        queries = _retrieve(rows, own, others, theirs, ranked, metric, same=same, together=together)
    # Neighbors by cosine were scaled where they were searched, so that zero rows are a kind.
    if metric == "cosine" and not normalize:
        rows = to_unit_length(rows, dim=1)
        others = None if others is None else to_unit_length(others, dim=1)
    found = Scores(queries)
    if pairs:
        verified = verify(
            rows, own, gallery=others, gallery_labels=theirs, fars=list(fars.values()), same=same
        )
        for name in pairs:
            found[name] = verified[f"tar@far={fars[name]:g}" if name in fars else name]
    if groups and clustering and one_class:
        means, found.spread = cluster(rows, own, seed=seed, restarts=restarts, together=together)
        found |= {name: means[name] for name in groups}
    return found


class Scores(dict[str, float]):
    """Mean scores by name, with the tables behind them.

    Attributes:
        queries: those scores that each query has.
        spread: standard deviation of ``nmi``, ``ami`` and ``f1`` over the seeds of k-means.

    >>> rows, labels = np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 0])
    >>> scores = evaluate(rows, labels, metrics=["recall@1", "map@r"])
    >>> scores["map@r"], scores.per_query["query"].tolist(), scores.per_class["queries"].tolist()
    (1.0, [0, 1, 2], [3])
    """

    def __init__(self, queries: QueryScores) -> None:
        super().__init__(queries.means())
        self.queries = queries
        self.spread: dict[str, float] = {}

    @property
    def per_query(self) -> dict[str, np.ndarray]:
        """A table with a row for each query that counts: ``query`` (its position), ``label`` and
        each score."""
        columns = {"query": self.queries.rows, "label": self.queries.labels, **self.queries.scores}
        return {name: column.cpu().numpy() for name, column in columns.items()}

    @property
    def per_class(self) -> dict[str, np.ndarray]:
        """A table with a row for each class: ``label``, ``queries`` (how many) and the mean of each
        score."""
        if self.queries.labels.ndim > 1 and self.queries.labels.dtype != torch.bool:
            return {}
        table = self.queries.by_class()
        return {
            name: part / table["queries"] if name in self.queries.scores else part
            for name, part in table.items()
        }


def measure(
    embedded: Embedded,
    *,
    recalls: Sequence[int],
    clustering: bool,
    seed: int = 0,
    restarts: int = 3,
) -> Scores:
    """Score embedded records as ``evaluate`` does: leave-one-out, or queries in a gallery where
    they have such roles. ``queries`` of the result has Recall@1 in any case. All processes call
    it together.

    Where texts are sought among pictures, ``image_to_text_recall@K`` is the other way. Of a given
    hierarchy each level has its scores, such as ``family_recall@1`` and ``family_map@r``.

    Queries that are sought in a gallery are clustered only where there are two of a class on
    average. With one of each, as of two views of a place, every query is a cluster of its own: NMI
    and F1 of 1, by any network.
    """
    rows, own, gallery = embedded.sides()
    how: Any = {"metric": embedded.metric, "together": True, "seed": seed, "restarts": restarts}
    if gallery:
        how["top_percent"] = True
        clustering = clustering and 2 * len(torch.unique(own, dim=0)) <= len(rows)
    asked = tuple(dict.fromkeys((*recalls, 1)))
    found = evaluate(rows, own, **gallery, recalls=asked, clustering=clustering, **how)
    if 1 not in recalls:
        del found["recall@1"]
    if gallery and embedded.records.captions is not None:  # so far, texts asked for pictures
        how |= {"gallery": rows, "gallery_labels": own, "metrics": [f"recall@{k}" for k in recalls]}
        back = evaluate(gallery["gallery"], gallery["gallery_labels"], **how)
        found |= {f"image_to_text_{name}": value for name, value in back.items()}
    for level, groups in embedded.records.levels.items():
        labels = embedded.records.columns[level]
        of_level = replace(embedded.records, labels=labels, classes=groups, levels={})
        rows, own, gallery = replace(embedded, records=of_level).sides()
        above = evaluate(
            rows,
            own,
            **gallery,
            metrics=["recall@1", "map@r"],
            metric=embedded.metric,
            together=True,
        )
        found |= {f"{level}_{name}": value for name, value in above.items()}
    return found


def _retrieve(
    rows: Tensor,
    own: Tensor,
    others: Tensor | None,
    theirs: Tensor | None,
    names: Sequence[str],
    metric: Metric,
    *,
    same: Same,
    together: bool,
) -> QueryScores:
    """Search as many neighbors as the scores of these names look at, and score them.

    Recall@K for a large K asks again only for the queries without a right neighbor among the first.
    """
    held = rows if others is None else others
    labels = own if theirs is None else theirs
    percent = len(held) // 100 + 1  # CVM-Net's code (Hu et al. 2018) and HER's
    asked = {name: f"recall@{percent}" if name == "recall@1%" else name for name in names}
    ends = {one: one.partition("@")[2] for one in asked.values()}
    depths = {one: int(end) for one, end in ends.items() if end.isdigit()}
    relevant = some_relevant(own, theirs, same)
    every = [k for one, k in depths.items() if one.startswith("precision")]
    most = ranks_needed(relevant, list(depths.values()))
    first = min(most, ranks_needed(relevant, [_FIRST, *every]))
    if set(WHOLE) & set(names):
        first = len(held)
    far = [one for one, k in depths.items() if k > first]
    near = [one for one in ends if one not in far]
    among = Gallery.of(rows, others, metric)
    everyone = torch.arange(len(rows), device=rows.device)

    def ask(queries: Tensor, places: Tensor, k: int, metrics: list[str]) -> QueryScores:
        """Score some of the queries."""
        chunks = among.search(queries, k, without=places if others is None else None)
        wanted = relevant[places]
        found = query_scores(
            chunks, own[places], labels, metrics=metrics, same=same, relevant=wanted
        )
        return replace(found, rows=places[found.rows])

    last = f"recall@{first}"
    queries = parallel.part(rows) if together else rows
    places = parallel.part(everyone) if together else everyone
    found = ask(queries, places, first, [*near, last])
    scores = found.scores | dict.fromkeys(far, found.scores[last])
    missed = (found.scores[last] == 0).nonzero().flatten()
    if far and len(missed):
        places = found.rows[missed]
        again = ask(rows[places], places, most, far).scores
        scores |= {one: scores[one].index_copy(0, missed, again[one]) for one in far}
    if together:
        scores = {one: parallel.join_rows(values) for one, values in scores.items()}
    counted = (relevant > 0).nonzero().flatten()
    return QueryScores(own[counted], {name: scores[one] for name, one in asked.items()}, counted)


def _checked(
    rows: Tensor | np.ndarray,
    labels: Tensor | np.ndarray,
    name: str,
    device: torch.device | str | None,
    same: Same,
) -> tuple[Tensor, Tensor]:
    """Return rows, half precision as float32, and their labels, which are integers unless ``same``
    compares them, on the device."""
    if not isinstance(rows, Tensor):
        rows = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
    if len(rows) == 0 or len(rows) != len(labels):
        raise DataError(
            f"each row needs a label, got {len(rows)} rows of {name} and {len(labels)} labels."
        )
    free = same is not None or labels.ndim > 1  # or integers, one for each row
    if isinstance(labels, np.ndarray) and labels.dtype.kind in ("biuf" if free else "iu"):
        labels = torch.from_numpy(labels.astype(float if labels.dtype.kind == "f" else int))
    if isinstance(labels, np.ndarray) or (
        not free and (labels.is_floating_point() or labels.is_complex())
    ):
        raise DataError(
            f"labels must be integers, got {labels.dtype} for those of {name}. Number the classes, "
            "with numpy.unique(labels, return_inverse=True) for example."
        )
    if device is None:
        device = "cuda" if rows.is_cpu and torch.cuda.is_available() else rows.device
    if same is None:
        labels = multi_hot(labels)
    exact = torch.promote_types(rows.dtype, torch.float32)
    return rows.detach().to(device, exact), labels.to(device, None if free else torch.long)
