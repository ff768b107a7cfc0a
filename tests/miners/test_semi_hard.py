"""Semi-hard mining where draws, ties and counts matter."""

import pytest
import torch

from vicinal.losses import Comparisons
from vicinal.losses.triplet import FEW, NEGATIVES, nearest_else_farthest, semi_hard_counts
from vicinal.miners import semi_hard


def listed(found):
    return list(zip(*(part.tolist() for part in found), strict=True))


def test_one_for_each_pair_is_the_nearest_or_any_of_them(rng):
    batch = torch.randn(24, 4, generator=rng, dtype=torch.float64), torch.arange(24) % 6
    every = listed(semi_hard(*batch, 0.4, rule="all"))
    nearest = {}
    for a, p, n in every:  # a pair's are listed nearest first
        nearest.setdefault((a, p), n)
    assert {(a, p): n for a, p, n in listed(semi_hard(*batch, 0.4))} == nearest
    drawn = set()
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        found = listed(semi_hard(*batch, 0.4, rule="random", generator=generator))
        assert {(a, p) for a, p, _ in found} == nearest.keys()
        drawn |= {*found}
    assert drawn == {*every}


def test_random_draws_are_even(rng):
    line = torch.tensor([[1.1], [1.2], [1.3], [0.0], *[[1.0]] * 900])
    labels = torch.tensor([1, 2, 3, *[0] * 901])
    found = semi_hard(line, labels, 1.0, rule="random", generator=rng, normalize=False)
    drawn = found.negative[found.anchor == 3]
    assert len(drawn) == 900 and (drawn.bincount() / 900 - 1 / 3).abs().max() < 0.05


def test_tensorflow_takes_the_nearest_beyond_else_the_farthest():
    line = torch.tensor([[0.0], [1.0], [0.5], [3.0], [-0.9]])
    labels = torch.tensor([0, 0, 1, 1, 2])
    found = listed(semi_hard(line, labels, rule="nearest_else_farthest", normalize=False))
    assert (0, 1, 3) in found  # 3.0 is the nearest beyond 1.0, however far
    assert (2, 3, 4) in found  # nothing is beyond 2.5 from 0.5, so the farthest, -0.9
    assert len(found) == 4
    there = torch.tensor([[True, True], [False, False]])
    negative = torch.tensor([[2.0, 1.0], [2.0, 1.0]])
    column, has = nearest_else_farthest(torch.zeros(2, 1), negative, there)
    assert column[0].item() == 1 and has.tolist() == [True, False]


def test_ties_are_not_semi_hard():
    """d_an = d_ap is not farther than the positive, d_an = d_ap + margin costs nothing."""
    line = torch.tensor([[0.0], [1.0], [-1.0], [1.25], [1.125], [-2.375]])  # nothing is rounded
    labels = torch.tensor([0, 0, 1, 2, 3, 4])
    found = listed(semi_hard(line, labels, 0.25, rule="all", normalize=False, squared=False))
    assert [n for a, p, n in found if (a, p) == (0, 1)] == [4]


@pytest.mark.parametrize("per_class", [2, FEW, FEW + 2, 12])
@pytest.mark.parametrize("margin", [0.3, 0.0, -0.5, 1e-20])
def test_counts_are_those_of_the_list_also_in_blocks(rng, per_class, margin, monkeypatch):
    labels = torch.arange(24) // per_class
    distances = torch.randint(0, 20, (24, 24), generator=rng) / 10.0  # many ties
    same = (labels[:, None] == labels).fill_diagonal_(False)
    positive = distances[same].view(24, per_class - 1)
    keep_positive = torch.rand(positive.shape, generator=rng) < 0.8
    keep_negative = (labels[:, None] != labels) & (torch.rand(24, 24, generator=rng) < 0.8)
    excess = distances[:, None] - positive[:, :, None]
    inside = (excess > 0) & (distances[:, None] < (positive + margin)[:, :, None])
    inside &= keep_positive[:, :, None] & keep_negative[:, None]
    c = Comparisons(positive, keep_positive, distances, keep_negative)
    for block in (NEGATIVES, 70):
        monkeypatch.setitem(semi_hard_counts.__globals__, "NEGATIVES", block)
        of_positives, of_negatives = semi_hard_counts(c, margin)
        assert torch.equal(of_positives.long(), inside.sum(dim=2))
        assert torch.equal(of_negatives.long(), inside.sum(dim=1))
