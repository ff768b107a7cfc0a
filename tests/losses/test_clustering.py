"""ClusteringLoss against the printed formula, its maximum sought among all sets of medoids."""

import itertools
import math
from collections import Counter

import pytest
import torch

from vicinal.losses import ClusteringLoss
from vicinal.losses.clustering import best_clustering

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


def test_the_choice_is_scored_as_by_hand_and_exchanges_never_make_it_worse(rng):
    labels = torch.arange(24) // 4
    gains = []
    for _ in range(5):
        rows = torch.randn(24, 2, generator=rng, dtype=torch.float64)
        distances = torch.cdist(rows, rows)
        same = labels[:, None] == labels
        scores = []
        for exchanges in (0, 1, 5):
            medoids, disagreement = best_clustering(distances, same, 10.0, exchanges)
            assert len(medoids.unique()) == 6
            by_hand = score_by_hand(distances.tolist(), labels.tolist(), medoids.tolist(), 10.0)
            cost = distances[:, medoids].amin(dim=1).sum()
            assert by_hand == pytest.approx(float(10.0 * disagreement - cost))
            scores.append(by_hand)
        assert scores == sorted(scores)
        gains.append([later - earlier for earlier, later in itertools.pairwise(scores)])
    assert all(max(gain) > 1e-6 for gain in zip(*gains, strict=True))  # of one sweep, and of more


def test_gradient_passes_through_the_chosen_distances_alone(rng):
    labels = torch.arange(12) // 3
    rows = torch.randn(12, 3, generator=rng, dtype=torch.float64).requires_grad_()
    loss = ClusteringLoss(gamma=2.0, normalize=False, reduction="sum")
    c = loss.comparisons(rows, labels)
    distances = c.negative.detach()
    (pull,) = torch.autograd.grad(loss.core(c).sums.sum(), c.negative)
    medoids, _ = best_clustering(distances, c.keep_positive, 2.0, 5)
    for_class = distances.masked_fill(~c.keep_positive, 0).sum(dim=0)
    expected = torch.zeros_like(pull)
    for row in range(12):  # pays less to its class's medoid, and more to the one it chose
        members = (labels == labels[row]).nonzero().flatten()
        expected[row, members[for_class[members].argmin()]] += 1
        expected[row, medoids[distances[row, medoids].argmin()]] -= 1
    torch.testing.assert_close(pull, expected)
