"""Retrieval scores against the definitions in loops; mAP and CMC with same-camera exclusion against
the protocol query by query."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import Gallery, neighbors
from vicinal.evaluation.retrieval import (
    query_score,
    query_scores,
    ranks_needed,
    reidentify,
    relevant_counts,
)


def by_hand(ids, labels, gallery_labels=None, recalls=(1, 2, 4)):
    """The definitions as printed, one query and one rank at a time."""
    names = labels if gallery_labels is None else gallery_labels
    sums = dict.fromkeys([*(f"recall@{k}" for k in recalls), "map@r", "r_precision"], 0.0)
    queries = 0
    for i, row in enumerate(ids.tolist()):
        relevant = sum(int(name == labels[i]) for name in names) - (gallery_labels is None)
        if relevant == 0:
            continue
        queries += 1
        right = [j >= 0 and int(names[j]) == int(labels[i]) for j in row]
        for k in recalls:
            sums[f"recall@{k}"] += any(right[:k])
        sums["r_precision"] += sum(right[:relevant]) / relevant
        sums["map@r"] += (
            sum(sum(right[: r + 1]) / (r + 1) for r in range(relevant) if right[r]) / relevant
        )
    return {name: total / queries for name, total in sums.items()}


def score(
    rows,
    labels,
    gallery=None,
    gallery_labels=None,
    *,
    recalls=(1, 2, 4),
    chunk_bytes=2000,
):
    ranks = ranks_needed(relevant_counts(labels, gallery_labels), recalls)
    own = torch.arange(len(rows)) if gallery is None else None
    chunks = Gallery.of(rows, gallery, "euclidean").search(
        rows, ranks, without=own, chunk_bytes=chunk_bytes
    )
    metrics = [*(f"recall@{k}" for k in recalls), "map@r", "r_precision"]
    return query_scores(chunks, labels, gallery_labels, metrics=metrics).means()


def labeled(rng, n, classes, dim=5):
    """Rows around class centers, near enough for some and not all neighbors to be right."""
    labels = torch.randint(classes, (n,), generator=rng)
    return torch.randn(classes, dim, generator=rng)[labels] + torch.randn(
        n, dim, generator=rng
    ), labels


def test_leave_one_out_equals_the_definitions_in_loops(rng):
    rows, labels = labeled(rng, 60, classes=25)  # some classes have one row
    assert (relevant_counts(labels) == 0).any()
    found = neighbors(rows, 20).ids
    assert score(rows, labels) == pytest.approx(by_hand(found, labels), abs=1e-12)


def test_query_and_gallery_equals_the_definitions_in_loops(rng):
    rows, labels = labeled(rng, 80, classes=12)
    queries = rows[:30]
    gallery = rows[30:]
    asked = labels[:30].clone()
    held = labels[30:]
    asked[3] = 99  # a class the gallery lacks, above all of its labels
    asked[4] = -1  # and one below
    found = neighbors(queries, 30, gallery=gallery).ids
    assert score(queries, asked, gallery, held) == pytest.approx(
        by_hand(found, asked, held), abs=1e-12
    )


def test_labels_beyond_float32_stay_apart(rng):
    rows, labels = labeled(rng, 40, classes=4)
    assert score(rows, labels + 2**53) == score(rows, labels)
    assert relevant_counts(torch.tensor([2**53, 2**53 + 1])).tolist() == [0, 0]


def test_queries_with_nothing_to_find_are_rejected_where_there_are_no_others(rng):
    rows = torch.randn(5, 3, generator=rng)
    with pytest.raises(DataError, match="got 5 queries without"):
        score(rows, torch.arange(5))


def test_recall_at_zero_is_rejected():
    with pytest.raises(ConfigError, match=r"\[1, 0\]"):
        ranks_needed(torch.tensor([1]), (1, 0))


def test_small_label_types_meet_large_ones():
    assert relevant_counts(
        torch.tensor([300, 44]), torch.tensor([44, 44], dtype=torch.int16)
    ).tolist() == [0, 2]


def test_precision_is_a_fraction_in_float64():
    hits = torch.tensor([[True, False, True]])
    found = query_score("precision@3", hits, torch.tensor([2]))
    assert found.item() == 2 / 3


def by_query(rows, labels, cameras, gallery, gallery_labels, gallery_cameras, ranks):
    """scikit-learn's average precision of one query after the other, without its junk."""
    found = []
    for apart, label, camera in zip(torch.cdist(rows, gallery), labels, cameras, strict=True):
        kept = (gallery_labels != label) | (gallery_cameras != camera)
        right = (gallery_labels == label)[kept]
        if right.any():
            first = int(right[apart[kept].argsort()].int().argmax())
            precision = average_precision_score(right, -apart[kept])
            found.append([precision, *(first < rank for rank in ranks)])
    names = ["map", *(f"cmc@{rank}" for rank in ranks)]
    return dict(zip(names, np.mean(found, axis=0), strict=True))


def test_equals_the_protocol_query_by_query(rng):
    centers = torch.randn(12, 4, generator=rng)
    labels = torch.randint(12, (25,), generator=rng)
    held = torch.randint(10, (80,), generator=rng)
    cameras = torch.randint(3, (25,), generator=rng)
    seen = torch.randint(3, (80,), generator=rng)
    rows = centers[labels] + torch.randn(25, 4, generator=rng)
    gallery = centers[held] + torch.randn(80, 4, generator=rng)
    found = reidentify(
        rows,
        labels,
        cameras,
        gallery=gallery,
        gallery_labels=held,
        gallery_cameras=seen,
    )
    assert found == pytest.approx(
        by_query(rows, labels, cameras, gallery, held, seen, ranks=(1, 5, 10)), abs=1e-12
    )


def test_queries_that_only_their_own_camera_saw_are_left_out():
    rows = torch.tensor([[0.0], [1.0]])
    labels = torch.tensor([7, 5])
    cameras = torch.tensor([1, 1])
    gallery = {"gallery": rows, "gallery_labels": torch.tensor([7, 5])}
    found = reidentify(
        rows, labels, cameras, **gallery, gallery_cameras=torch.tensor([1, 2]), ranks=(1,)
    )
    assert found == {"map": 1.0, "cmc@1": 1.0}
    with pytest.raises(DataError, match="got 2 queries without"):
        reidentify(rows, labels, cameras, **gallery, gallery_cameras=torch.tensor([1, 1]))
