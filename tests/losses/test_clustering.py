"""ClusteringLoss against the printed formula, its maximum sought among all sets of medoids."""

import itertools
import math
from collections import Counter

import pytest
import torch

from vicinal.losses import ClusteringLoss

LABELINGS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 2],
    "two classes": [0, 0, 0, 1, 1, 1],
    "one class": [0, 0, 0],
    "no two alike": [0, 1, 2],
}


def entropy(names):
    shares = [count / len(names) for count in Counter(names).values()]
    return -sum(share * math.log(share) for share in shares)


def information_by_hand(first, second):
    """Mutual information over the geometric mean of entropies; 1 where neither divides anything."""
    apart = (entropy(first), entropy(second))
    if apart[0] * apart[1] < 1e-12:
        return float(max(apart) < 1e-12)
    together = entropy(list(zip(first, second, strict=True)))
    return (sum(apart) - together) / math.sqrt(apart[0] * apart[1])


def score_by_hand(distances, labels, medoids, gamma):
    """F(S) + γΔ(S)."""
    cluster = [min(medoids, key=lambda j: distances[i][j]) for i in range(len(labels))]
    cost = sum(distances[i][j] for i, j in enumerate(cluster))
    return -cost + gamma * (1 - information_by_hand(cluster, labels))


def best_by_hand(distances, labels, gamma):
    sets = itertools.combinations(range(len(labels)), len(set(labels)))
    return max(score_by_hand(distances, labels, medoids, gamma) for medoids in sets)


def ideal_by_hand(distances, labels):
    """F~."""
    total = 0.0
    for name in set(labels):
        members = [i for i, label in enumerate(labels) if label == name]
        total -= min(sum(distances[i][j] for i in members) for j in members)
    return total


@pytest.mark.parametrize("labels", LABELINGS.values(), ids=LABELINGS)
@pytest.mark.parametrize(
    "options", [{}, {"gamma": 5.0}, {"squared": True}, {"normalize": False, "gamma": 0.1}]
)
def test_equals_the_printed_formula_with_the_best_of_all_sets(labels, options, rng):
    loss = ClusteringLoss(reduction="sum", **options)
    near = 0
    for _ in range(8):
        rows = torch.randn(len(labels), 3, generator=rng, dtype=torch.float64)
        unit = rows / rows.norm(dim=1, keepdim=True) if loss.normalize else rows
        distances = (torch.cdist(unit, unit) ** (2 if loss.squared else 1)).tolist()
        excess = best_by_hand(distances, labels, loss.gamma) - ideal_by_hand(distances, labels)
        found = loss(rows, torch.tensor(labels)).item()
        assert found <= max(0.0, excess) + 1e-9
        near += found >= excess - 1e-9
    assert near >= 6  # greedy and exchanges nearly always find the best of so few
