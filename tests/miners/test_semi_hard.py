"""Semi-hard mining where draws, ties and counts matter."""

import torch

from vicinal.losses.triplet import nearest_else_farthest
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
