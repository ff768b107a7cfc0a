"""The shares of active triplets and of inseparable samples against counts of them all."""

import math

import pytest
import torch
from tests.listed import triplets

from vicinal.losses import inseparable_shares
from vicinal.losses.diagnostics import active_among


@pytest.mark.parametrize("margin", [0.0, 0.2])
def test_active_equals_a_count_of_listed_triplets(rng, margin):
    rows = torch.randn(15, 3, generator=rng, dtype=torch.float64)
    labels = torch.arange(15) // 3
    distance = torch.cdist(rows, rows)
    a, p, n = triplets(labels)
    expected = (distance[a, n] < distance[a, p] + margin).double().mean()
    torch.testing.assert_close(active_among(distance, labels, margin), expected)


def inseparable_by_hand(embeddings, labels):
    """Every ball around every anchor; the best by the sum of both shares, then the smallest."""

    def shares(inner, outer, radius):
        missed = sum(d > radius for d in inner) / len(inner)
        return missed, sum(d <= radius for d in outer) / len(outer)

    found = []
    for i, anchor in enumerate(embeddings):
        others = [
            (math.dist(anchor, x), y == labels[i]) for x, y in zip(embeddings, labels, strict=True)
        ]
        del others[i]
        inner = [d for d, same in others if same]
        outer = [d for d, same in others if not same]
        if inner and outer:
            balls = [shares(inner, outer, r) for r in sorted([-1.0, *inner, *outer])]
            found.append(min(balls, key=lambda pair: round(sum(pair), 9)))
    return [sum(column) / len(found) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
def test_inseparable_equals_a_search_over_every_ball(rng, spread):
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3 + [3])
    centers = torch.randn(4, 3, generator=rng, dtype=torch.float64)[labels]
    rows = centers + spread * torch.randn(13, 3, generator=rng, dtype=torch.float64)
    found = inseparable_shares(rows, labels, normalize=False)
    assert list(found) == pytest.approx(inseparable_by_hand(rows.tolist(), labels.tolist()))


def test_where_all_have_collapsed_nothing_is_separable():
    for labels in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]):
        assert sum(inseparable_shares(torch.ones(6, 3), torch.tensor(labels))) == 1


def test_is_0_where_no_anchor_has_both_kinds(rng):
    rows = torch.randn(4, 3, generator=rng)
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4), torch.arange(0)):
        assert inseparable_shares(rows[: len(labels)], labels) == (0, 0)
        assert active_among(torch.cdist(rows, rows)[: len(labels), : len(labels)], labels, 0.0) == 0
