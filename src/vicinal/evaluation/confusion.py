"""Which classes are found badly and which are taken for one another, from first neighbours and labels alone."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from vicinal.evaluation.retrieval import relevant_counts, right


@dataclass(frozen=True)
class ClassRecall:
    """How often the first neighbour of a class's queries is of that class."""

    label: int
    queries: int
    recall: float


@dataclass(frozen=True)
class Confusion:
    """How often the first neighbour of a class's queries is of one other class.

    Attributes:
        label: the queries' class.
        taken_for: their neighbours' class.
        share: of the class's queries.
        queries: how many queries the class has.
        example: position of one such query, the first, and of its neighbour.
    """

    label: int
    taken_for: int
    share: float
    queries: int
    example: tuple[int, int]


def recall_by_class(
    first: Int[Tensor, "q"], labels: Int[Tensor, "q"], gallery_labels: Int[Tensor, "g"] | None = None
) -> list[ClassRecall]:
    """Recall@1 of each class, worst first, larger classes before smaller ones of equal recall.

    Classes that no neighbour can be of (no other row) are left out.

    >>> recall_by_class(torch.tensor([1, 2, 3, 2]), torch.tensor([0, 0, 1, 1]))[0]
    ClassRecall(label=0, queries=2, recall=0.5)
    """
    asked = relevant_counts(labels, gallery_labels) > 0
    names = labels if gallery_labels is None else gallery_labels
    hits = right(first.unsqueeze(1), labels, names).squeeze(1)[asked]
    classes, place, sizes = torch.unique(labels[asked], return_inverse=True, return_counts=True)
    found = torch.bincount(place, weights=hits.double(), minlength=len(classes))
    rows = zip(classes.tolist(), sizes.tolist(), (found / sizes).tolist(), strict=True)
    return sorted((ClassRecall(*row) for row in rows), key=lambda row: (row.recall, -row.queries, row.label))


def confused_pairs(
    first: Int[Tensor, "q"],
    labels: Int[Tensor, "q"],
    gallery_labels: Int[Tensor, "g"] | None = None,
    *,
    limit: int | None = None,
) -> list[Confusion]:
    """Pairs of classes by the share of the one's queries whose first neighbour is of the other, largest first.

    Of equal shares the one of more queries comes first. Classes that no neighbour can be of are left out.

    >>> confused_pairs(torch.tensor([1, 2, 3, 2]), torch.tensor([0, 0, 1, 1]))
    [Confusion(label=0, taken_for=1, share=0.5, queries=2, example=(1, 2))]
    """
    names = labels if gallery_labels is None else gallery_labels
    classes, sizes = torch.unique(labels, return_counts=True)
    queries = dict(zip(classes.tolist(), sizes.tolist(), strict=True))
    wrong = (relevant_counts(labels, gallery_labels) > 0) & (first >= 0) & (names[first] != labels)
    cases: dict[tuple[int, int], list[int]] = {}
    for query in wrong.nonzero().flatten().tolist():
        cases.setdefault((int(labels[query]), int(names[first[query]])), []).append(query)
    pairs = [
        Confusion(label, other, len(found) / queries[label], queries[label], (found[0], int(first[found[0]])))
        for (label, other), found in cases.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair.share, -pair.queries, pair.label, pair.taken_for))[:limit]
