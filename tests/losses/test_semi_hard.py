"""SemiHardTripletLoss against the definition, written out one triplet at a time."""

import inspect
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import BatchAllTripletLoss, SemiHardTripletLoss, TripletLoss
from vicinal.miners import semi_hard
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "many positives": [0] * 7 + [1] * 3 + [2],
    "one class": [0, 0, 0],
    "no two alike": [0, 1, 2],
}


def pairs_by_hand(loss, embeddings, labels):
    """For each (anchor, positive): its distance and those of all negatives."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]

    def distance(i, j):
        square = float(((embeddings[i] - embeddings[j]) ** 2).sum())
        return square if loss.squared else square**0.5

    n = range(len(labels))
    for a in n:
        for p in n:
            if p != a and labels[p] == labels[a]:
                yield distance(a, p), [distance(a, k) for k in n if labels[k] != labels[a]]


def by_hand(loss, embeddings, labels):
    terms = []
    for positive, negatives in pairs_by_hand(loss, embeddings, labels):
        if loss.rule == "all":
            chosen = [d for d in negatives if positive < d < positive + loss.margin]
        else:
            beyond = [d for d in negatives if d > positive]
            chosen = [min(beyond) if beyond else max(negatives)] if negatives else []
        terms += [max(0.0, positive - d + loss.margin) for d in chosen]
    return sum(terms) / max(1, len(terms)), sum(terms)


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("rule", ["all", "nearest_else_farthest"])
@pytest.mark.parametrize("options", [{}, {"squared": False}, {"normalize": False}])
def test_equals_the_definition(labels, rule, options, embeddings):
    given = embeddings(len(labels))
    for margin in (0.5, 2.0, 0.0):
        mean = SemiHardTripletLoss(margin, rule=rule, **options)
        total = SemiHardTripletLoss(margin, rule=rule, reduction="sum", **options)
        found = mean(given, torch.tensor(labels)), total(given, torch.tensor(labels))
        expected = by_hand(mean, given, labels)
        torch.testing.assert_close(torch.stack(found), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("labels", [[0] * 7 + [1] * 3 + [2], [0, 0, 1, 1, 2, 2]])
@pytest.mark.parametrize("rule", ["all", "nearest_else_farthest"])
def test_gradient_matches_finite_differences(labels, rule, embeddings):
    given, loss = embeddings(len(labels)).requires_grad_(), SemiHardTripletLoss(1.0, rule=rule)
    assert loss(given, torch.tensor(labels)) > 0
    assert gradcheck(lambda e: loss(e, torch.tensor(labels)), (given,), fast_mode=True)


@pytest.mark.parametrize("per_class", [2, 4, 10])
def test_equals_the_peer_in_value_and_gradient(rng, per_class):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.miners import TripletMarginMiner

    miner, peer = (
        TripletMarginMiner(margin=0.2, type_of_triplets="semihard"),
        losses.TripletMarginLoss(margin=0.2),
    )
    labels, given = (
        torch.arange(60) // per_class,
        torch.randn(60, 16, generator=rng).requires_grad_(),
    )
    ours, theirs = (
        SemiHardTripletLoss(squared=False)(given, labels),
        peer(given, labels, miner(given, labels)),
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    gradients = [torch.autograd.grad(value, given)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_is_the_loss_of_the_triplets_that_mining_lists(embeddings):
    given, labels = embeddings(24), torch.arange(24) // 6
    mined = semi_hard(given, labels, 0.3, rule="all")
    expected = TripletLoss(0.3).on_triplets(given, mined)
    torch.testing.assert_close(SemiHardTripletLoss(0.3)(given, labels), expected)
    torch.testing.assert_close(SemiHardTripletLoss(0.3).on_triplets(given, mined), expected)
    pairs = semi_hard(given, labels, rule="nearest_else_farthest")
    found = SemiHardTripletLoss(0.3, rule="nearest_else_farthest")(given, labels)
    torch.testing.assert_close(found, TripletLoss(0.3).on_triplets(given, pairs))


def test_hard_and_easy_triplets_cost_nothing():
    line = torch.tensor([[0.0], [1.0], [0.9], [1.1], [1.3]], requires_grad=True)
    loss = SemiHardTripletLoss(0.2, squared=False, normalize=False, reduction="none")
    for negative, cost in ((2, 0.0), (3, 0.1), (4, 0.0)):
        value = loss.on_triplets(line, Triplets(*torch.tensor([[0], [1], [negative]])))
        assert value.item() == pytest.approx(cost, abs=1e-6)
        assert bool(torch.autograd.grad(value.sum(), line)[0].any()) == (cost > 0)


def test_costs_less_than_the_margin_and_nothing_after_a_collapse(embeddings):
    given, labels = embeddings(24), torch.arange(24) // 4
    values = SemiHardTripletLoss(0.2, reduction="none")(given, labels)
    assert (values >= 0).all() and (values < 0.2).all() and (values > 0).any()
    collapsed = torch.ones(24, 3, requires_grad=True)
    value = SemiHardTripletLoss(0.2)(collapsed, labels)
    assert value == 0 and torch.autograd.grad(value, collapsed)[0].eq(0).all()
    by_pairs = SemiHardTripletLoss(0.2, rule="nearest_else_farthest")(collapsed, labels)
    assert by_pairs.item() == pytest.approx(0.2)


def test_is_the_batch_all_loss_where_all_triplets_are_semi_hard():
    line = torch.tensor([[0.0], [0.1], [1.0], [1.1]], dtype=torch.float64)
    labels, options = torch.tensor([0, 0, 1, 1]), {"squared": False, "normalize": False}
    found = SemiHardTripletLoss(5.0, **options)(line, labels)
    torch.testing.assert_close(found, BatchAllTripletLoss(5.0, **options)(line, labels))


@pytest.mark.parametrize("rule", ["all", "nearest_else_farthest"])
def test_weights_multiply_the_terms_in_which_a_sample_stands(embeddings, rng, rule):
    loss, labels = SemiHardTripletLoss(1.0, rule=rule), torch.arange(9) // 3
    c = loss.comparisons(embeddings(9), labels)
    weights = [
        torch.rand(side.shape, generator=rng, dtype=torch.float64)
        for side in (c.positive, c.negative)
    ]
    found = loss.core(replace(c, positive_weights=weights[0], negative_weights=weights[1])).sums
    expected = torch.zeros(9, dtype=torch.float64)
    for a in range(9):
        for p in range(2):
            beyond = [
                n
                for n in range(9)
                if labels[n] != labels[a] and c.negative[a, n] > c.positive[a, p]
            ]
            others = [n for n in range(9) if labels[n] != labels[a]]
            if rule != "all":
                beyond = (
                    [min(beyond, key=lambda n: c.negative[a, n])]
                    if beyond
                    else [max(others, key=lambda n: c.negative[a, n])]
                )
            for n in beyond:
                term = (c.positive[a, p] - c.negative[a, n] + 1.0).relu()
                expected[a] += term * weights[0][a, p] * weights[1][a, n]
    torch.testing.assert_close(found, expected)


def test_an_unknown_rule_is_rejected_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'nearest_else_farthest'"):
        inspect.unwrap(SemiHardTripletLoss.__init__)(
            SemiHardTripletLoss(), rule="nearest_or_farthest"
        )


@pytest.mark.slow
def test_a_batch_of_8192_fits_where_its_triplets_would_not():
    given = torch.randn(8192, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    SemiHardTripletLoss()(given, torch.arange(8192) // 8).backward()
    assert given.grad.isfinite().all()
