"""Groups in a collection, by k-means."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float32

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.clustering import kmeans
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.map import principal_components
from vicinal.retrieval.pages import Group, Page

_SHOWN = 18  # pictures of a group, the nearest its mean
SAMPLE = 2000  # rows on which numbers of groups are compared: silhouettes need all their distances
_NEARLY = 0.75  # of the best silhouette; see `chosen_count`
_MOST_TRIED = 512  # groups; a sample has too few rows for each of more


def cluster(
    vectors: Float[np.ndarray, "n d"], groups: int | None = None
) -> tuple[list[tuple[list[int], list[float]]], str]:
    """Group rows that lie near one another by k-means.

    Args:
        vectors: rows to group; may be memory-mapped.
        groups: how many; None chooses the number by silhouette.

    Returns:
        rows of each group, those nearest its mean first, with their distances from it, the largest
        group first; and how they were found, in a sentence.
    """
    count = len(vectors)
    if count < 4:
        raise DataError(f"grouping needs at least 4 items; the collection has {count}. Index more.")
    rows = np.array(vectors, dtype=np.float32)
    groups, reason = chosen_count(rows) if groups is None else (groups, "")
    if not 1 <= groups <= count:
        raise ConfigError(f"{count} items fall into 1 to {count} groups; got --groups {groups}.")
    assigned = kmeans(torch.from_numpy(rows), groups, seed=0).numpy()
    found = list[tuple[list[int], list[float]]]()
    for group in np.unique(assigned):
        members = np.flatnonzero(assigned == group)
        spread = np.linalg.norm(rows[members] - rows[members].mean(axis=0), axis=1)
        order = np.argsort(spread, kind="stable")
        found.append((members[order].tolist(), spread[order].tolist()))
    found.sort(key=lambda each: (-len(each[0]), min(each[0])))
    return found, f"k-means with {groups} groups{reason}."


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


def cluster_page(snapshot: Snapshot, groups: int | None = None) -> Page:
    """Group a collection: largest group first, what is nearest its mean first."""
    found, words = cluster(snapshot.euclidean_vectors(), groups)
    facts = [("groups", f"{len(found):,}"), ("items", f"{len(snapshot):,}")]
    labels = [[snapshot.items()[row].label for row in rows] for rows, _ in found]
    if (agreement := _agreement(labels)) is not None:
        facts.append(("NMI with the labels", f"{agreement:.3f}"))
    titles = (
        f"Group {number}: {len(inside):,} items{_mostly(inside)}"
        for number, inside in enumerate(labels, 1)
    )
    pages = [Group(*group, title) for group, title in zip(found, titles, strict=True)]
    caption = (
        "The number below a picture is its distance from the mean of its group; what is "
        "nearest comes first."
    )
    return Page("Groups in the collection", facts, [words, caption], pages, _SHOWN)


def _mostly(labels: Sequence[str | None]) -> str:
    """Return what most of a group are, as words for its title.

    >>> _mostly(["wren", "wren", "robin", None]), _mostly([None])
    (', mostly wren (2 of 3)', '')
    """
    counts = Counter(label for label in labels if label is not None)
    most = (
        f", mostly {name} ({count} of {counts.total()})" for name, count in counts.most_common(1)
    )
    return next(most, "")


def _agreement(labels: Sequence[Sequence[str | None]]) -> float | None:
    """NMI of groups and labels, of what has one; None where there is nothing to compare."""
    from sklearn.metrics import normalized_mutual_info_score

    pairs = [(name, group) for group, names in enumerate(labels) for name in names if name]
    if len({name for name, _ in pairs}) < 2:
        return None
    return float(normalized_mutual_info_score(*zip(*pairs, strict=True)))
