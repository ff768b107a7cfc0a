"""Confused pairs, counted by hand on a small retrieval, and the map."""

import numpy as np
import pytest
import torch

from vicinal.data import ImageArray, Records
from vicinal.evaluation import artifacts
from vicinal.evaluation.artifacts import confused_pairs, tsne

# Class 0 = rows 0-3, class 1 = rows 4-5, class 2 = rows 6-7, class 3 = row 8 alone.
LABELS = [0, 0, 0, 0, 1, 1, 2, 2, 3]
FIRST = torch.tensor([1, 4, 5, 6, 5, 0, 4, 5, 0])
EVERY = torch.arange(9)


def confused(first, labels, queries, gallery):
    names = [f"row {row}" for row in range(len(labels))]
    source = ImageArray(np.zeros((len(labels), 2, 2), np.uint8), names)
    splits = np.full(len(labels), "test")
    records = Records("set", source, np.array(labels), tuple("abcdefgh"), splits)
    return [tuple(pair.values()) for pair in confused_pairs(first, records, queries, gallery)]


def test_confused_pairs_by_share_then_by_queries():
    assert confused(FIRST, LABELS, EVERY, None) == [
        ("c", "b", 1.0, 2, [6, 4]),
        ("a", "b", 0.5, 4, [1, 4]),
        ("b", "a", 0.5, 2, [5, 0]),
        ("a", "c", 0.25, 4, [3, 6]),
    ]


def test_a_gallery_has_rows_of_its_own():
    sought = torch.tensor([3, 4, 4]), [5, 5, 6, 5, 7], torch.arange(3), torch.tensor([3, 4])
    assert confused(*sought) == [("f", "h", 0.5, 2, [1, 4])]


def test_absent_neighbors_are_no_confusion():
    first = torch.tensor([-1, 0, 3, 2])
    assert confused(first, [3, 3, 4, 4], torch.arange(4), None) == []


def test_clear_clusters_stay_apart_and_a_seed_repeats_itself(rng, monkeypatch):
    monkeypatch.setattr(artifacts, "STEPS", 1000)
    labels = torch.arange(3).repeat_interleave(15)
    rows = 20 * torch.eye(3, 8)[labels] + torch.randn(45, 8, generator=rng)
    position = tsne(rows, seed=0)
    assert position.shape == (45, 2)
    distances = torch.cdist(position, position) + torch.eye(45) * 1e9
    assert torch.equal(labels[distances.argmin(dim=1)], labels)
    assert torch.equal(position, tsne(rows, seed=0))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("dim", [1, 4])
def test_few_rows_have_finite_positions(rng, n, dim):
    position = tsne(torch.randn(n, dim, generator=rng), seed=0)
    assert position.shape == (n, 2)
    assert position.isfinite().all()
