"""ClusteringLoss against the printed formula, its maximum sought among all sets of medoids."""

import itertools
import math
from collections import Counter

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import ClusteringLoss
from vicinal.losses.clustering import best_clustering
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 2],
    "two classes": [0, 0, 0, 1, 1, 1],
    "one class": [0, 0, 0],
    "no two alike": [0, 1, 2],
}


def information_by_hand(first, second):
    """Mutual information over the geometric mean of entropies; 1 where neither divides anything."""
    n = len(first)

    def entropy(names):
        return -sum(count / n * math.log(count / n) for count in Counter(names).values())

    product = entropy(first) * entropy(second)
    if product < 1e-12:
        return float(max(entropy(first), entropy(second)) < 1e-12)
    return (
        entropy(first) + entropy(second) - entropy(list(zip(first, second, strict=True)))
    ) / math.sqrt(product)


def score_by_hand(distances, labels, medoids, gamma):
    """F(S) + γΔ(S)."""
    cluster = [min(medoids, key=lambda j: distances[i][j]) for i in range(len(labels))]
    cost = sum(distances[i][j] for i, j in enumerate(cluster))
    return -cost + gamma * (1 - information_by_hand(cluster, labels))


def ideal_by_hand(distances, labels):
    """F~."""
    total = 0.0
    for name in set(labels):
        members = [i for i, label in enumerate(labels) if label == name]
        total -= min(sum(distances[i][j] for i in members) for j in members)
    return total


def distances_by_hand(embeddings, loss):
    rows = [row / row.norm() for row in embeddings] if loss.normalize else list(embeddings)
    return [[float((a - b).norm()) ** (2 if loss.squared else 1) for b in rows] for a in rows]


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"gamma": 5.0}, {"squared": True}, {"normalize": False, "gamma": 0.1}]
)
def test_equals_the_printed_formula_with_the_best_of_all_sets(labels, options, rng):
    loss, found, exact = ClusteringLoss(reduction="sum", **options), [], []
    for _ in range(8):
        embeddings = torch.randn(len(labels), 3, generator=rng, dtype=torch.float64)
        distances = distances_by_hand(embeddings, loss)
        sets = itertools.combinations(range(len(labels)), len(set(labels)))
        best = max(score_by_hand(distances, labels, medoids, loss.gamma) for medoids in sets)
        found.append(loss(embeddings, torch.tensor(labels)).item())
        exact.append(max(0.0, best - ideal_by_hand(distances, labels)))
    assert all(f <= e + 1e-9 for f, e in zip(found, exact, strict=True))
    near = [f >= e - 1e-9 for f, e in zip(found, exact, strict=True)]
    assert sum(near) >= 6  # greedy and exchanges nearly always find the best of so few


def test_the_choice_is_scored_as_by_hand_and_exchanges_never_make_it_worse(rng):
    labels, gamma, gains = torch.arange(24) // 4, 10.0, []
    for _ in range(5):
        rows = torch.randn(24, 2, generator=rng, dtype=torch.float64)
        distances, same, scores = torch.cdist(rows, rows), labels[:, None] == labels, []
        for exchanges in (0, 1, 5):
            medoids, disagreement = best_clustering(distances, same, gamma, exchanges)
            assert len(medoids.unique()) == 6
            scores.append(
                score_by_hand(distances.tolist(), labels.tolist(), medoids.tolist(), gamma)
            )
            cost = distances[:, medoids].amin(dim=1).sum()
            assert scores[-1] == pytest.approx(float(gamma * disagreement - cost))
        assert scores == sorted(scores)
        gains.append([later - earlier for earlier, later in itertools.pairwise(scores)])
    assert all(
        max(gain) > 1e-6 for gain in zip(*gains, strict=True)
    )  # one sweep helps, and so do further ones


def test_gradient_passes_through_the_chosen_distances_alone(rng):
    labels = torch.arange(12) // 3
    embeddings = torch.randn(12, 3, generator=rng, dtype=torch.float64).requires_grad_()
    loss = ClusteringLoss(gamma=2.0, normalize=False, reduction="sum")
    assert gradcheck(lambda e: loss(e, labels), (embeddings,), fast_mode=True)
    c = loss.comparisons(embeddings, labels)
    distances = c.negative.detach()
    (pull,) = torch.autograd.grad(loss.core(c).sums.sum(), c.negative, retain_graph=True)
    medoids, _ = best_clustering(distances, c.keep_positive, 2.0, 5)
    for_class = distances.masked_fill(~c.keep_positive, 0).sum(dim=0)
    expected = torch.zeros_like(pull)
    for row in range(12):
        members = (labels == labels[row]).nonzero().flatten()
        expected[row, members[for_class[members].argmin()]] += 1  # pays less to its class's medoid
        expected[row, medoids[distances[row, medoids].argmin()]] -= (
            1  # and more to the one it chose
        )
    torch.testing.assert_close(pull, expected)


def test_well_parted_classes_cost_nothing():
    corners = torch.eye(4, dtype=torch.float64).repeat_interleave(3, dim=0)
    jitter = 0.01 * torch.randn(
        12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    embeddings = (corners + jitter).requires_grad_()
    value = ClusteringLoss()(embeddings, torch.arange(12) // 3)
    assert value.item() == pytest.approx(0, abs=1e-12)


def test_a_larger_gamma_asks_for_more(rng):
    embeddings, labels = (
        torch.randn(20, 4, generator=rng, dtype=torch.float64),
        torch.arange(20) // 4,
    )
    values = [ClusteringLoss(gamma)(embeddings, labels).item() for gamma in (0.0, 1.0, 10.0)]
    assert values == sorted(values) and values[0] >= 0 and values[2] > values[0]


def test_mean_is_the_sum_over_samples_and_none_its_equal_shares(rng):
    embeddings, labels = torch.randn(12, 4, generator=rng), torch.arange(12) // 3
    total, mean, each = (
        ClusteringLoss(reduction=how)(embeddings, labels) for how in ("sum", "mean", "none")
    )
    torch.testing.assert_close(total, 12 * mean)
    torch.testing.assert_close(each, mean.expand(12))


def test_triplets_have_no_meaning():
    with pytest.raises(ConfigError, match="triplets have no meaning"):
        ClusteringLoss().on_triplets(torch.zeros(3, 2), Triplets(*torch.tensor([[0], [1], [2]])))


@pytest.mark.slow
def test_restarts_find_the_maximum_that_the_greedy_search_misses():
    missed = {0: 0, 8: 0}
    for seed in range(60):
        rng = torch.Generator().manual_seed(seed)
        labels = torch.randint(3, (8,), generator=rng)
        embeddings, loss = torch.randn(8, 3, generator=rng, dtype=torch.float64), ClusteringLoss()
        distances, names = distances_by_hand(embeddings, loss), labels.tolist()
        subsets = itertools.combinations(range(8), len(set(names)))
        best = max(score_by_hand(distances, names, medoids, 1.0) for medoids in subsets)
        costs, same = loss.distance(embeddings), labels[:, None] == labels
        for restarts in missed:
            medoids, _ = best_clustering(costs, same, 1.0, 5, restarts)
            missed[restarts] += score_by_hand(distances, names, medoids.tolist(), 1.0) < best - 1e-9
    assert missed[0] > 0 and missed[8] == 0, missed
    assert ClusteringLoss(restarts=4).restarts == 4
