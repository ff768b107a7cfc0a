"""Groups in a collection: by k-means, or by density, where what belongs to no group is an
outlier."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.clustering import kmeans
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import Contents, Group, mostly
from vicinal.retrieval.map import principal_components

METHODS = ("k-means", "hdbscan")
_SHOWN = 18  # pictures of a group, the nearest its mean
SAMPLE = 2000  # rows on which numbers of groups are compared: silhouettes need all their distances
_NEARLY = 0.75  # of the best silhouette; see `chosen_count`
_MOST_TRIED = 512  # groups; a sample has too few rows for each of more
_HDBSCAN_ROWS = 30_000  # its time grows with the square: some minutes for these


@dataclass(frozen=True)
class Grouping:
    """Which rows belong together.

    Attributes:
        assigned: group of each row, 0 for the largest and so on; -1 for rows in none.
        spread: distance of each row from the mean of its group; NaN for rows in none.
        words: how the groups were found, in a sentence.
    """

    assigned: Int64[np.ndarray, "n"]
    spread: Float32[np.ndarray, "n"]
    words: str

    @property
    def sizes(self) -> list[int]:
        """Rows of each group, falling."""
        return list(np.bincount(self.assigned[self.assigned >= 0]).tolist())

    @property
    def loose(self) -> int:
        """Rows in no group."""
        return int((self.assigned < 0).sum())

    def members(self, group: int) -> list[int]:
        """Return rows of a group, those nearest its mean first."""
        rows = np.flatnonzero(self.assigned == group)
        return list(rows[np.argsort(self.spread[rows], kind="stable")].tolist())


def cluster(
    vectors: Float[np.ndarray, "n d"],
    *,
    method: str = "k-means",
    groups: int | None = None,
    least: int = 5,
) -> Grouping:
    """Group rows that lie near one another.

    Args:
        vectors: rows to group; may be memory-mapped.
        method: ``"k-means"`` puts each row into one of ``groups``. ``"hdbscan"`` (Campello et al.
            2013, on 50 principal components) finds dense groups and leaves rows out.
        groups: of k-means; None chooses the number by silhouette.
        least: rows of the smallest dense group.
    """
    from sklearn.cluster import HDBSCAN

    count = len(vectors)
    if method not in METHODS:
        raise ConfigError(unknown("method", method, METHODS))
    if count < 4:
        raise DataError(f"grouping needs at least 4 items; the collection has {count}. Index more.")
    if least < 2:
        raise ConfigError(f"a dense group has at least 2 members; got --least {least}.")
    rows = np.array(vectors, dtype=np.float32)
    if method == "k-means":
        groups, reason = chosen_count(rows) if groups is None else (groups, "")
        if not 1 <= groups <= count:
            raise ConfigError(
                f"{count} items fall into 1 to {count} groups; got --groups {groups}."
            )
        assigned = kmeans(torch.from_numpy(rows), groups, seed=0).numpy()
        return _ordered(rows, assigned, f"k-means with {groups} groups{reason}.")
    if groups is not None:
        raise ConfigError(
            f"{method} finds the number of groups itself; got --groups {groups}. Use k-means."
        )
    if count > _HDBSCAN_ROWS:
        raise ConfigError(f"HDBSCAN groups at most {_HDBSCAN_ROWS:,}; got {count:,}. Use k-means.")
    short = principal_components(rows)
    assigned = np.full(count, -1)
    if count >= least:
        assigned = HDBSCAN(min_cluster_size=least, copy=True).fit_predict(short)
    words = f"HDBSCAN on {short.shape[1]} principal components, groups of at least {least}."
    return _ordered(rows, assigned, words)


def chosen_count(rows: Float32[np.ndarray, "n d"]) -> tuple[int, str]:
    """Choose a number of groups by silhouette (Rousseeuw 1987); return also the values compared, in
    words.

    k-means is run on a sample of at most 2,000 rows, on 50 principal components, with 2, 4, 8, ...
    groups, then with numbers around the best. More than 512 groups are not tried: such a number has
    to be named.

    Differs: embeddings of classes that are alike in families often fall apart best in two, which
    says nothing about the classes. So where the silhouette falls from 2 on and rises again to three
    quarters of its largest value or more, the largest after the rise counts.
    ``docs/howto/export.md`` has what this was judged by.
    """
    from sklearn.metrics import silhouette_score

    sample = principal_components(
        rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:SAMPLE])]
    )
    most = min(_MOST_TRIED, len(sample) // 2)
    scores: dict[int, float] = {}

    def measured(counts: Iterable[int]) -> dict[int, float]:
        for count in sorted(set(counts) - set(scores)):
            found = kmeans(torch.from_numpy(sample), count, seed=0, restarts=2).numpy()
            several = 1 < len(np.unique(found)) < len(sample)
            scores[count] = float(silhouette_score(sample, found)) if several else -1.0
        return {count: scores[count] for count in sorted(counts)}

    best = _peak(measured({2**power for power in range(1, most.bit_length())} | {most}))
    around = [round(best * factor) for factor in (0.6, 0.7, 0.85, 1.2, 1.4, 1.7)]
    finer = measured({best, *(count for count in around if 2 <= count <= most)})
    best = max(finer, key=lambda count: (finer[count], -count))
    tried = ", ".join(f"{count}: {scores[count]:.3f}" for count in sorted(scores))
    return best, f", a number chosen by silhouette on {len(sample):,} rows (tried {tried})"


def _peak(scores: Mapping[int, float]) -> int:
    """Return the number with the largest score; where scores fall and rise again nearly as high,
    that after the rise.

    >>> _peak({2: 0.10, 4: 0.08, 8: 0.09, 16: 0.07}), _peak({2: 0.9, 4: 0.5, 8: 0.51})
    (8, 2)
    """
    counts = sorted(scores)
    rise = next(
        (
            place
            for place, (low, high) in enumerate(pairwise(counts), 1)
            if scores[high] > scores[low]
        ),
        0,
    )
    later = max(counts[rise:], key=lambda count: (scores[count], -count))
    overall = max(counts, key=lambda count: (scores[count], -count))
    return later if scores[later] >= _NEARLY * scores[overall] else overall


def _ordered(rows: Float32[np.ndarray, "n d"], assigned: np.ndarray, words: str) -> Grouping:
    """Number the groups by falling size, equal ones by their first row."""
    names, first, sizes = np.unique(assigned[assigned >= 0], return_index=True, return_counts=True)
    grouped = np.full(len(rows), -1, dtype=np.int64)
    spread = np.full(len(rows), np.nan, dtype=np.float32)
    for number, group in enumerate(names[np.lexsort((first, -sizes))]):
        members = assigned == group
        grouped[members] = number
        spread[members] = np.linalg.norm(rows[members] - rows[members].mean(axis=0), axis=1)
    return Grouping(grouped, spread, words)


def cluster_contents(snapshot: Snapshot, found: Grouping) -> Contents:
    """Fill the page of a grouping: largest group first, what is nearest its mean first; outliers
    last."""
    labels = [item.label for item in snapshot.items()]
    facts = [("groups", f"{len(found.sizes):,}"), ("items in a group", f"{sum(found.sizes):,}")]
    facts += [("in none", f"{found.loose:,}")] if found.loose else []
    if (agreement := _agreement(found, labels)) is not None:
        facts.append(("NMI with the labels", f"{agreement:.3f}"))
    groups = []
    for number, size in enumerate(found.sizes):
        rows = found.members(number)
        named = mostly([labels[row] for row in rows])
        title = f"Group {number + 1}: {size:,} items" + (f", {named}" if named else "")
        groups.append(Group(number + 1, rows, found.spread[rows].tolist(), title))
    if found.loose:
        rows = np.flatnonzero(found.assigned < 0).tolist()
        groups.append(
            Group(0, rows, found.spread[rows].tolist(), f"In no group: {found.loose:,} items")
        )
    caption = (
        "The number below a picture is its distance from the mean of its group; what is "
        "nearest comes first."
    )
    empty = "No group was found."
    return Contents(
        "Groups in the collection", facts, [found.words, caption], groups, _SHOWN, empty
    )


def _agreement(found: Grouping, labels: list[str | None]) -> float | None:
    """NMI of groups and labels, of what has both; None where there is nothing to compare."""
    from sklearn.metrics import normalized_mutual_info_score

    pairs = [
        (label, group)
        for label, group in zip(labels, found.assigned.tolist(), strict=True)
        if label is not None and group >= 0
    ]
    classes = [label for label, _ in pairs]
    if len(set(classes)) < 2:
        return None
    return float(normalized_mutual_info_score(classes, [group for _, group in pairs]))
