"""mAP and CMC with same-camera exclusion against the protocol query by query."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from vicinal.errors import DataError
from vicinal.evaluation.retrieval import reidentify


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
