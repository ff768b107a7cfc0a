"""mAP and CMC with same-camera exclusion against the protocol in loops."""

import math

import pytest
import torch

from vicinal.errors import DataError
from vicinal.evaluation.retrieval import reidentify


def by_hand(rows, labels, cameras, gallery, gallery_labels, gallery_cameras, ranks):
    """Sort the gallery for one query after the other, drop its junk, walk down the list."""
    sums = dict.fromkeys(["map", *(f"cmc@{rank}" for rank in ranks)], 0.0)
    answered = 0
    for query, label, camera in zip(rows.tolist(), labels.tolist(), cameras.tolist(), strict=True):
        others = zip(
            gallery.tolist(), gallery_labels.tolist(), gallery_cameras.tolist(), strict=True
        )
        listed = sorted(
            (math.dist(query, row), j, other, seen) for j, (row, other, seen) in enumerate(others)
        )
        right = [
            other == label
            for _, _, other, seen in listed
            if not (other == label and seen == camera)
        ]
        if not any(right):
            continue
        answered += 1
        places = [place for place, hit in enumerate(right, start=1) if hit]
        sums["map"] += sum(count / place for count, place in enumerate(places, start=1)) / len(
            places
        )
        for rank in ranks:
            sums[f"cmc@{rank}"] += places[0] <= rank
    return {name: total / answered for name, total in sums.items()}


def test_equals_the_protocol_in_loops(rng):
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
        by_hand(rows, labels, cameras, gallery, held, seen, ranks=(1, 5, 10)), abs=1e-12
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
