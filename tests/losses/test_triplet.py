"""Triplet losses against the papers' sums, written out one triplet at a time."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from tests.listed import triplets
from torch.autograd import gradcheck

from vicinal.distances import unit_rows
from vicinal.errors import ConfigError
from vicinal.losses import BatchAllTripletLoss, BatchHardTripletLoss, Comparisons, TripletLoss
from vicinal.losses import loss as base
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "many positives": [0] * 7 + [1] * 2,
    "one class": [0, 0, 0],
    "no two alike": [0, 1, 2],
}


def excesses_by_hand(loss, embeddings, labels):
    """For each anchor all d_ap - d_an + margin: no masks, no batching."""
    if loss.normalize:
        embeddings = [row / row.norm() for row in embeddings]

    def distance(i, j):
        square = float(((embeddings[i] - embeddings[j]) ** 2).sum())
        return square if loss.squared else math.sqrt(square)

    n = range(len(labels))
    for a in n:
        yield [
            distance(a, p) - distance(a, k) + loss.margin
            for p in n
            for k in n
            if p != a and labels[p] == labels[a] and labels[k] != labels[a]
        ]


def penalty(loss, excess):
    return math.log1p(math.exp(excess)) if loss.soft else max(0.0, excess)


def batch_all_by_hand(loss, embeddings, labels):
    terms = [
        penalty(loss, e)
        for excesses in excesses_by_hand(loss, embeddings, labels)
        for e in excesses
    ]
    counted = (
        terms if getattr(loss, "average", "all") == "all" else [term for term in terms if term > 0]
    )
    return sum(terms) / max(1, len(counted)), sum(terms)


def batch_hard_by_hand(loss, embeddings, labels):
    terms = [penalty(loss, max(e)) for e in excesses_by_hand(loss, embeddings, labels) if e]
    return sum(terms) / max(1, len(terms)), sum(terms)


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    ("kind", "by_hand", "options"),
    [
        (TripletLoss, batch_all_by_hand, {}),
        (BatchAllTripletLoss, batch_all_by_hand, {"average": "nonzero"}),
        (BatchAllTripletLoss, batch_all_by_hand, {"average": "all", "squared": True}),
        (BatchHardTripletLoss, batch_hard_by_hand, {"normalize": True}),
    ],
)
def test_equals_the_printed_sums(kind, by_hand, options, soft, labels, embeddings):
    given = embeddings(len(labels))
    for margin in (0.3, -0.2):
        mean = kind(margin, soft=soft, **options)
        total = kind(margin, soft=soft, reduction="sum", **options)
        found = mean(given, torch.tensor(labels)), total(given, torch.tensor(labels))
        expected = by_hand(mean, given, labels)
        torch.testing.assert_close(torch.stack(found), torch.tensor(expected, dtype=torch.float64))


def test_gradient_with_more_positives_than_are_counted_one_by_one(embeddings):
    labels = torch.tensor([0] * 7 + [1] * 3)
    assert gradcheck(
        lambda e: BatchAllTripletLoss()(e, labels),
        (embeddings(10).requires_grad_(),),
        fast_mode=True,
    )


def test_batch_all_equals_the_peer_in_value_and_gradient(rng):
    peer = pytest.importorskip("pytorch_metric_learning.losses").TripletMarginLoss(margin=0.2)
    for per_class in (2, 4, 10):
        labels = torch.arange(60) // per_class
        given = torch.randn(60, 16, generator=rng).requires_grad_()
        ours, theirs = BatchAllTripletLoss(0.2, normalize=True)(given, labels), peer(given, labels)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
        gradients = [torch.autograd.grad(value, given)[0] for value in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("soft", [False, True])
def test_batch_hard_equals_the_peer(rng, soft):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    from pytorch_metric_learning.miners import BatchHardMiner
    from pytorch_metric_learning.reducers import MeanReducer

    labels, given = torch.arange(40) // 4, torch.randn(40, 16, generator=rng)
    peer = losses.TripletMarginLoss(margin=0.1, smooth_loss=soft, reducer=MeanReducer())
    expected = peer(given, labels, BatchHardMiner()(given, labels))
    torch.testing.assert_close(
        BatchHardTripletLoss(0.1, normalize=True, soft=soft)(given, labels), expected
    )


def test_facenet_lies_between_0_and_margin_plus_4_and_ignores_length_and_rotation(embeddings):
    given, labels = embeddings(12), torch.arange(12) // 3
    values = TripletLoss(0.2, reduction="none")(given, labels)
    assert (values >= 0).all() and (values <= 4.2).all()
    rotation, _ = torch.linalg.qr(embeddings(3))
    torch.testing.assert_close(
        TripletLoss(0.2, reduction="none")(7 * given @ rotation, labels), values
    )
    opposite = torch.tensor([[1.0], [-1.0], [1.0]])
    found = TripletLoss(0.2).on_triplets(opposite, Triplets(*torch.tensor([[0], [1], [2]])))
    assert found.item() == pytest.approx(4.2)


@pytest.mark.parametrize("kind", [TripletLoss, BatchAllTripletLoss, BatchHardTripletLoss])
def test_collapse_costs_the_margin_or_ln_2_without_gradient(kind):
    labels = torch.arange(12) // 3
    for options, value in (({"margin": 0.3}, 0.3), ({"margin": 0.0, "soft": True}, math.log(2))):
        given = torch.ones(12, 4, requires_grad=True)
        loss = kind(**options)(given, labels)
        assert loss.item() == pytest.approx(value)
        assert torch.autograd.grad(loss, given)[0].abs().max() < 1e-6


def test_batch_hard_bounds_batch_all_and_nonzero_bounds_all(embeddings):
    given, labels = embeddings(20), torch.arange(20) // 4
    hard, every, nonzero = (
        loss(given, labels)
        for loss in (
            BatchHardTripletLoss(reduction="none"),
            BatchAllTripletLoss(average="all", reduction="none"),
            BatchAllTripletLoss(average="nonzero", reduction="none"),
        )
    )
    assert (hard >= nonzero).all() and (nonzero >= every).all() and (hard > every).any()


def test_counts_are_pk_times_pk_less_k_times_k_less_1(embeddings):
    classes, per_class = 5, 4
    n = classes * per_class
    loss = BatchAllTripletLoss(average="all")
    terms = loss.core(loss.comparisons(embeddings(n), torch.arange(n) // per_class))
    assert terms.counts.sum() == n * (n - per_class) * (per_class - 1)
    active = BatchAllTripletLoss(margin=1e3)
    assert (
        active.core(active.comparisons(embeddings(n), torch.arange(n) // per_class)).counts.sum()
        == terms.counts.sum()
    )


@pytest.mark.parametrize("kind", [BatchAllTripletLoss, BatchHardTripletLoss])
def test_moves_and_turns_do_not_matter_and_scale_carries_through(kind, embeddings):
    given, labels = embeddings(12), torch.arange(12) // 3
    rotation, _ = torch.linalg.qr(embeddings(3))
    value = kind(0.2)(given, labels)
    torch.testing.assert_close(kind(0.2)(given @ rotation + embeddings(1), labels), value)
    torch.testing.assert_close(kind(0.2 * 7)(7 * given, labels), 7 * value)


@pytest.mark.parametrize("kind", [TripletLoss, BatchAllTripletLoss, BatchHardTripletLoss])
def test_soft_margin_lies_above_the_hinge_and_meets_it_far_out(kind, embeddings):
    given, labels = embeddings(12), torch.arange(12) // 3
    options = {"margin": 0.0, "reduction": "sum", "normalize": False}
    soft, hard = kind(soft=True, **options), kind(**options)
    assert soft(given, labels) > hard(given, labels)
    torch.testing.assert_close(
        soft(1e4 * given, labels), hard(1e4 * given, labels), rtol=1e-3, atol=0
    )


def test_the_gradient_moves_no_center_and_an_inactive_triplet_has_none(embeddings):
    given, labels = embeddings(12).requires_grad_(), torch.arange(12) // 3
    (gradient,) = torch.autograd.grad(TripletLoss(normalize=False)(given, labels), given)
    torch.testing.assert_close(
        gradient.sum(dim=0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0
    )
    apart = torch.tensor([[0.0, 0.0], [0.0, 0.1], [9.0, 0.0]], requires_grad=True)
    loss = TripletLoss(normalize=False)(apart, torch.tensor([0, 0, 1]))
    assert loss == 0 and torch.autograd.grad(loss, apart)[0].eq(0).all()


def test_explicit_triplets_equal_all_triplets_when_all_are_listed(embeddings):
    given, labels = embeddings(9), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    for loss in (TripletLoss(), BatchAllTripletLoss(), BatchAllTripletLoss(soft=True)):
        torch.testing.assert_close(loss.on_triplets(given, triplets(labels)), loss(given, labels))


def test_weights_of_explicit_triplets_multiply_their_losses(embeddings):
    given, labels = embeddings(6), torch.tensor([0, 0, 1, 1, 2, 2])
    listed = triplets(labels)
    weights = torch.rand(
        len(listed.anchor), dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    loss = TripletLoss(reduction="none")
    expected = weights * loss.on_triplets(given, listed)
    torch.testing.assert_close(loss.on_triplets(given, listed, weights), expected)


def test_blocks_take_the_disjoint_triplets_and_skip_rows_that_do_not_fit(embeddings):
    given = embeddings(12)
    labels = torch.tensor(
        [0, 1, 2, 3, 0, 1, 2, 9, 4, 5, 2, 6]
    )  # row 2 has no negative, row 3 no positive
    fitting = Triplets(torch.tensor([0, 1]), torch.tensor([4, 5]), torch.tensor([8, 9]))
    expected = TripletLoss(5.0).on_triplets(given, fitting)
    torch.testing.assert_close(TripletLoss(5.0, blocks=True)(given, labels), expected)
    assert TripletLoss(blocks=True, reduction="none")(given, labels).shape == (4,)
    with pytest.raises(ConfigError, match="got 11 rows"):
        TripletLoss(blocks=True)(given[:11], labels[:11])


@pytest.mark.parametrize("soft", [False, True])
def test_weights_multiply_the_terms_in_which_a_sample_stands(embeddings, soft, rng):
    loss = BatchAllTripletLoss(soft=soft)
    labels = torch.arange(9) // 3
    c = loss.comparisons(embeddings(9), labels)
    weights = [
        torch.rand(side.shape, generator=rng, dtype=torch.float64)
        for side in (c.positive, c.negative)
    ]
    found = loss.core(replace(c, positive_weights=weights[0], negative_weights=weights[1])).sums
    excess = c.positive[:, :, None] - c.negative[:, None] + loss.margin
    terms = torch.nn.functional.softplus(excess) if soft else excess.relu()
    terms = terms * weights[0][:, :, None] * weights[1][:, None]
    torch.testing.assert_close(
        found, (terms * (c.keep_positive[:, :, None] & c.keep_negative[:, None])).sum(dim=(1, 2))
    )


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", [TripletLoss, BatchAllTripletLoss])
def test_one_positive_and_one_negative_are_summed_like_several(kind, soft, rng):
    """Beside a second column that is not there they take another way."""
    values = [
        torch.randn(9, 1, generator=rng, dtype=torch.float64).requires_grad_() for _ in range(2)
    ]
    keep = [torch.rand(9, 1, generator=rng) < 0.8 for _ in range(2)]
    weights = [torch.rand(9, 1, generator=rng, dtype=torch.float64) for _ in range(2)]
    found = []
    for width in (0, 1):
        positive, negative = (torch.nn.functional.pad(value, (0, width)) for value in values)
        there = [torch.nn.functional.pad(part, (0, width)) for part in (*keep, *weights)]
        c = Comparisons(
            positive,
            there[0],
            negative,
            there[1],
            positive_weights=there[2],
            negative_weights=there[3],
        )
        terms = kind(0.1, soft=soft).core(c)
        found.append((*terms, *torch.autograd.grad(terms.sums.sum(), values)))
    torch.testing.assert_close(found[0], found[1])


def test_batch_hard_takes_the_weight_of_the_pairs_it_chose():
    there = torch.tensor([[True, True]])
    c = Comparisons(torch.tensor([[1.0, 2.0]]), there, torch.tensor([[0.5, 0.1]]), there)
    weighted = replace(
        c, positive_weights=torch.tensor([[5.0, 2.0]]), negative_weights=torch.tensor([[7.0, 3.0]])
    )
    assert BatchHardTripletLoss(margin=0.0).core(weighted).sums.item() == pytest.approx(1.9 * 2 * 3)


def test_an_anchor_without_positives_or_negatives_does_not_count_in_the_mean_of_batch_hard():
    distances = torch.tensor([[1.0], [1.0], [1.0]])
    positive, negative = (
        torch.tensor([[True], [True], [False]]),
        torch.tensor([[True], [False], [True]]),
    )
    terms = BatchHardTripletLoss(margin=0.5).core(
        Comparisons(distances, positive, distances, negative)
    )
    assert terms.sums.tolist() == [0.5, 0, 0] and terms.counts.tolist() == [1, 0, 0]


def test_a_large_soft_batch_keeps_only_its_inputs_and_gives_the_same(embeddings, monkeypatch):
    given, labels = embeddings(9).requires_grad_(), torch.arange(9) // 3
    loss = BatchAllTripletLoss(soft=True)
    (small,) = torch.autograd.grad(loss(given, labels), given, create_graph=True)
    (small_second,) = torch.autograd.grad(small.square().sum(), given)
    monkeypatch.setattr(base, "BLOCK", 0)
    (large,) = torch.autograd.grad(loss(given, labels), given, create_graph=True)
    (large_second,) = torch.autograd.grad(large.square().sum(), given)
    torch.testing.assert_close((large, large_second), (small, small_second))


def test_margins_of_class_pairs_enter_by_shifting_the_negatives(embeddings):
    """As the hierarchical triplet loss needs them; one margin for all pairs is the plain loss."""
    given, labels = embeddings(9), torch.arange(9) // 3
    plain, zero = BatchAllTripletLoss(0.4), BatchAllTripletLoss(0.0)
    c = zero.comparisons(given, labels)
    shifted = zero.core(
        replace(
            c, negative=c.negative - torch.full((3, 3), 0.4, dtype=torch.float64)[labels][:, labels]
        )
    )
    torch.testing.assert_close(shifted, plain.core(plain.comparisons(given, labels)))


def test_synthetic_negatives_of_each_anchor_enter_through_the_core(embeddings, rng):
    given, labels, loss = embeddings(6), torch.arange(6) // 2, TripletLoss(reduction="none")
    synthetic = torch.randn(6, 4, 3, generator=rng, dtype=torch.float64)
    c = loss.comparisons(given, labels)
    negative = loss.distance(given, synthetic)
    values = loss.core(
        replace(c, negative=negative, keep_negative=torch.ones_like(negative, dtype=torch.bool))
    ).sums
    unit, others = unit_rows(given), unit_rows(synthetic)
    pull = (unit - unit[[1, 0, 3, 2, 5, 4]]).square().sum(dim=1)
    push = (unit[:, None] - others).square().sum(dim=2)
    torch.testing.assert_close(values, (pull[:, None] - push + 0.2).relu().sum(dim=1))


def test_an_unknown_average_is_rejected_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'nonzero'"):
        inspect.unwrap(BatchAllTripletLoss.__init__)(BatchAllTripletLoss(), average="non-zero")


@pytest.mark.slow
def test_a_batch_of_8192_fits_where_its_triplets_would_not():
    """8192 x 7 x 8184 triplets would be 1.9 TB; the matrix of distances is 256 MiB."""
    given = torch.randn(8192, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    BatchAllTripletLoss(normalize=True)(given, torch.arange(8192) // 8).backward()
    assert given.grad.isfinite().all()
