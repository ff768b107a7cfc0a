"""Distance-weighted mining against the paper's density, and the places where naive code
overflows."""

import math

import pytest
import torch

from vicinal.miners import distance_weighted, log_weights


def weight_by_hand(distance, dim, cutoff):
    def inverse_density(d):
        return 1 / (d ** (dim - 2) * (1 - d * d / 4) ** ((dim - 3) / 2))

    return min(inverse_density(cutoff), inverse_density(distance))


@pytest.mark.parametrize("dim", [2, 3, 8, 16])
def test_weights_are_the_printed_ones_up_to_a_factor(dim):
    distances = torch.tensor([[0.1, 0.4, 0.5, 0.9, 1.2, 1.5, 1.9]], dtype=torch.float64)
    found = log_weights(distances, dim, 0.5)
    expected = [
        math.log(weight_by_hand(d, dim, 0.5)) - math.log(weight_by_hand(0.5, dim, 0.5))
        for d in distances[0]
    ]
    torch.testing.assert_close(found[0], torch.tensor(expected, dtype=torch.float64))


def test_weights_stay_finite_in_many_dimensions_and_at_both_poles():
    # 2 and a rounding.
    found = log_weights(torch.tensor([[0.0, 0.5, 1.41, 2.0, 2.000001]]), 2048, 0.5)
    assert found.isfinite().all() and found[0, 1] == found.max() == 0


def test_negatives_are_drawn_with_these_probabilities(rng):
    # The fifth is beyond 1.4: 2 sin(0.85) = 1.50.
    angles = torch.tensor([0.8, 1.0, 1.2, 1.4, 1.7, *[0.0] * 50])
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    found = distance_weighted(embeddings, torch.tensor([1, 2, 3, 4, 5, *[0] * 50]), generator=rng)
    drawn = found.negative[found.anchor >= 5].bincount()
    weights = torch.tensor(
        [weight_by_hand(2 * math.sin(a / 2), 2, 0.5) for a in angles[:4].tolist()]
    )
    assert len(drawn) == 4 and drawn.sum() == 50 * 49
    assert (drawn / drawn.sum() - weights / weights.sum()).abs().max() < 0.03


def test_every_pair_has_its_own_draw(rng):
    embeddings = torch.randn(40, 8, generator=rng)
    labels = torch.arange(40) // 8
    found = distance_weighted(embeddings, labels, generator=rng, farthest=2.1)
    assert len(found.anchor) == 40 * 7
    first = found.negative[found.anchor == 0]
    assert len(first.unique()) > 1


def test_an_anchor_whose_negatives_are_all_too_far_forms_no_triplet(rng):
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
    assert not len(distance_weighted(embeddings, torch.tensor([0, 0, 1, 1]), generator=rng).anchor)


@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_the_first_and_the_last_draw_still_name_a_negative(monkeypatch, rng, draw):
    """The first falls on columns that cannot be drawn; the last, rounded up, on none."""
    monkeypatch.setattr(
        torch, "rand", lambda shape, **_: torch.full(tuple(shape), draw, dtype=torch.float64)
    )
    embeddings = torch.randn(12, 3, generator=rng)
    labels = torch.arange(12) // 3
    found = distance_weighted(embeddings, labels, generator=rng, farthest=2.1)
    assert len(found.anchor) == 24 and (labels[found.negative] != labels[found.anchor]).all()
