"""Embedding Expansion against the points of the paper's figure, written out."""

import itertools
import math

import pytest
import torch

from vicinal.losses import HPHNLoss
from vicinal.methods.loop import ExpandedNegatives, positive_pairs


def points_by_hand(x, y, count):
    inner = [((count + 1 - k) * x + k * y) / (count + 1) for k in range(1, count + 1)]
    return [point / point.norm() for point in (x, *inner, y)]


@pytest.mark.parametrize("points", [0, 1, 5])
def test_the_nearest_of_all_points_stands_for_both_pairs(points, unit_vectors):
    rows = unit_vectors(6, dim=3)
    labels = torch.arange(6) // 2
    first, second, _ = positive_pairs(labels, "consecutive")
    found = ExpandedNegatives(HPHNLoss(), points=points).negatives(5 * rows, first, second)
    for a, b in itertools.product(range(3), repeat=2):
        ours, theirs = (points_by_hand(rows[2 * k], rows[2 * k + 1], points) for k in (a, b))
        nearest = min(math.dist(p.tolist(), q.tolist()) for p in ours for q in theirs)
        assert found[a, b].item() == pytest.approx(nearest, abs=1e-12)
