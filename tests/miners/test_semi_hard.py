"""Semi-hard mining against the definition, one triplet at a time."""

import inspect

import pytest
import torch
from tests.listed import triplets

from vicinal.distances import pairwise_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses import Comparisons
from vicinal.losses.triplet import FEW, NEGATIVES, nearest_else_farthest, semi_hard_counts
from vicinal.miners import semi_hard


def by_hand(embeddings, labels, margin, *, squared=True, normalize=True):
    """For each (anchor, positive) its semi-hard negatives, nearest first."""
    rows = unit_rows(embeddings) if normalize else embeddings
    d = pairwise_distances(rows, squared=squared)
    n = range(len(labels))
    return {
        (a, p): sorted(
            (k for k in n if labels[k] != labels[a] and d[a, p] < d[a, k] < d[a, p] + margin),
            key=lambda k: d[a, k],
        )
        for a in n
        for p in n
        if p != a and labels[p] == labels[a]
    }


@pytest.fixture
def batch(rng):
    return torch.randn(24, 4, generator=rng, dtype=torch.float64), torch.arange(24) % 6


def listed(found):
    return list(zip(*(part.tolist() for part in found), strict=True))


@pytest.mark.parametrize("options", [{}, {"squared": False}, {"normalize": False}])
@pytest.mark.parametrize("margin", [0.2, 1.0, 0.0, float("inf")])
def test_all_are_those_of_the_definition(batch, margin, options):
    expected = {(a, p, n) for (a, p), ns in by_hand(*batch, margin, **options).items() for n in ns}
    found = listed(semi_hard(*batch, margin, rule="all", **options))
    assert len(found) == len(expected) and set(found) == expected
    assert bool(expected) == (margin > 0)


def test_one_for_each_pair_is_the_nearest_or_any_of_them(batch):
    expected = by_hand(*batch, 0.4)
    nearest = {(a, p): n for a, p, n in listed(semi_hard(*batch, 0.4))}
    assert nearest == {pair: ns[0] for pair, ns in expected.items() if ns}
    drawn = set()
    for seed in range(200):
        found = listed(
            semi_hard(*batch, 0.4, rule="random", generator=torch.Generator().manual_seed(seed))
        )
        assert {(a, p) for a, p, _ in found} == nearest.keys()
        drawn |= set(found)
    assert drawn == {(a, p, n) for (a, p), ns in expected.items() for n in ns}


def test_random_draws_are_even():
    line, labels = (
        torch.tensor([[1.1], [1.2], [1.3], [0.0], *[[1.0]] * 900]),
        torch.tensor([1, 2, 3, *[0] * 901]),
    )
    generator = torch.Generator().manual_seed(0)
    found = semi_hard(line, labels, 1.0, rule="random", generator=generator, normalize=False)
    drawn = found.negative[found.anchor == 3]
    assert len(drawn) == 900 and (drawn.bincount() / 900 - 1 / 3).abs().max() < 0.05


def test_tensorflow_takes_the_nearest_beyond_else_the_farthest():
    line = torch.tensor([[0.0], [1.0], [0.5], [3.0], [-0.9]])
    labels = torch.tensor([0, 0, 1, 1, 2])
    found = listed(semi_hard(line, labels, rule="nearest_else_farthest", normalize=False))
    assert (0, 1, 3) in found  # 3.0 is the nearest beyond 1.0, however far
    assert (2, 3, 4) in found  # nothing is beyond 2.5 from 0.5, so the farthest, -0.9
    assert len(found) == 4


def test_ties_are_not_semi_hard():
    """d_an = d_ap is not farther than the positive, d_an = d_ap + margin costs nothing."""
    line = torch.tensor(
        [[0.0], [1.0], [-1.0], [1.25], [1.125], [-2.375]]
    )  # about 0, so that nothing is rounded
    labels = torch.tensor([0, 0, 1, 2, 3, 4])
    found = listed(semi_hard(line, labels, 0.25, rule="all", normalize=False, squared=False))
    assert [n for a, p, n in found if (a, p) == (0, 1)] == [4]


@pytest.mark.parametrize("per_class", [2, FEW, FEW + 2, 12])
@pytest.mark.parametrize("margin", [0.3, 0.0, -0.5, 1e-20])
def test_counts_are_those_of_the_list(rng, per_class, margin):
    labels = torch.arange(24) // per_class
    distances = torch.randint(0, 20, (24, 24), generator=rng) / 10.0  # many ties
    same = (labels[:, None] == labels).fill_diagonal_(False)
    positive = distances[same].view(24, per_class - 1)
    keep_positive = torch.rand(positive.shape, generator=rng) < 0.8
    keep_negative = (labels[:, None] != labels) & (torch.rand(24, 24, generator=rng) < 0.8)
    inside = (distances[:, None] > positive[:, :, None]) & (
        distances[:, None] < (positive + margin)[:, :, None]
    )
    inside &= keep_positive[:, :, None] & keep_negative[:, None]
    found = semi_hard_counts(Comparisons(positive, keep_positive, distances, keep_negative), margin)
    assert torch.equal(found[0].long(), inside.sum(dim=2)) and torch.equal(
        found[1].long(), inside.sum(dim=1)
    )


def test_counts_in_blocks_of_rows_are_the_same(rng, monkeypatch):
    given = torch.rand(20, 6, generator=rng), torch.rand(20, 30, generator=rng)
    sides = ((side, torch.rand(side.shape, generator=rng) < 0.7) for side in given)
    c = Comparisons(*(part for side in sides for part in side))
    whole = semi_hard_counts(c, 0.2)
    monkeypatch.setitem(semi_hard_counts.__globals__, "NEGATIVES", 70)
    assert NEGATIVES > 70
    for found, expected in zip(semi_hard_counts(c, 0.2), whole, strict=True):
        assert torch.equal(found, expected)


def test_a_row_without_negatives_is_told():
    there = torch.tensor([[True, True], [False, False]])
    column, has = nearest_else_farthest(
        torch.zeros(2, 1), torch.tensor([[2.0, 1.0], [2.0, 1.0]]), there
    )
    assert column[0].item() == 1 and has.tolist() == [True, False]


def test_a_list_that_is_too_long_is_rejected_with_the_number(batch):
    total = len(semi_hard(*batch, 4.0, rule="all").anchor)
    with pytest.raises(ConfigError, match=f"there are {total} and the limit is {total - 1}"):
        semi_hard(*batch, 4.0, rule="all", most=total - 1)
    assert total <= len(triplets(batch[1]).anchor)


def test_what_is_unknown_or_missing_is_rejected(batch):
    with pytest.raises(ConfigError, match="draws from a `generator`"):
        semi_hard(*batch, rule="random")
    with pytest.raises(ConfigError, match="did you mean 'nearest'"):
        inspect.unwrap(semi_hard)(*batch, rule="nearst")


def test_all_equal_the_peers(rng):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    embeddings, labels = torch.randn(40, 8, generator=rng), torch.arange(40) // 4
    peer = miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")(embeddings, labels)
    assert set(listed(semi_hard(embeddings, labels, 0.2, rule="all", squared=False))) == set(
        listed(peer)
    )
