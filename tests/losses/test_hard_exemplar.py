"""HardExemplarLoss against its printed sums, the shape of its weights, and its orientation term."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import HardExemplarLoss, TripletLoss, orientation_errors
from vicinal.losses import loss as base

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
MARGIN = 3.75  # the authors': 25 times 0.15


def weight_by_hand(loss, gap, compared):
    m = loss.margin * (loss.scale**2 if loss.squared else loss.scale)
    if not loss.weighted:
        return 1.0
    if gap >= m:
        return loss.epsilon / (compared if loss.epsilon_over == "batch" else m / 2)
    matched = 1 / (1 + math.exp(-max(gap, 0.0) + m / 2))
    return -math.log2(matched)


def by_hand(loss, embeddings, labels):
    """The formula as printed, anchor by anchor and triplet by triplet."""
    rows = [loss.scale * (row / row.norm() if loss.normalize else row) for row in embeddings]
    distance = lambda i, j: float((rows[i] - rows[j]).norm()) ** (2 if loss.squared else 1)  # noqa: E731
    total, count, n = 0.0, 0, range(len(labels))
    for a in n:
        compared = len(labels) - 1
        for p in n:
            for k in n:
                if a != p and labels[a] == labels[p] and labels[k] != labels[a]:
                    gap = distance(a, k) - distance(a, p)
                    total += weight_by_hand(loss, gap, compared) * math.log(1 + math.exp(-gap))
                    count += 1
    return total / count


def pairs_by_hand(loss, queries, gallery, errors):
    """The authors' code, written out: B queries, each with its own match; the means over B x B, the
    diagonal 0."""
    size = len(queries)
    match = orientation = 0.0
    unit = lambda row: loss.scale * row / row.norm()  # noqa: E731
    for i in range(size):
        positive = float((unit(queries[i]) - unit(gallery[i])).square().sum())
        for k in range(size):
            if k != i:
                gap = float((unit(queries[i]) - unit(gallery[k])).square().sum()) - positive
                weight = weight_by_hand(loss, gap, size)
                match += weight * math.log(1 + math.exp(-gap))
                orientation += weight * float(errors[i])
    return match / size**2, orientation / size**2


@pytest.fixture
def embeddings(rng):
    return torch.randn(8, 4, generator=rng, dtype=torch.float64)


@pytest.fixture
def views(rng):
    """Queries, their matches nearby, and an error each."""
    queries = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    gallery = queries + 0.6 * torch.randn(6, 4, generator=rng, dtype=torch.float64)
    return queries, gallery, 4 * torch.rand(6, generator=rng, dtype=torch.float64)


def weigh(gaps, compared=10.0, **options):
    gaps = torch.tensor(gaps, dtype=torch.float64)
    return HardExemplarLoss(**options).weigh(gaps, torch.full_like(gaps, compared))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"squared": False, "scale": 2.0},
        {"normalize": False, "scale": 1.0, "margin": 2.0},
        {"weighted": False},
    ],
    ids=str,
)
def test_equals_the_printed_sum_over_triplets(options, embeddings):
    loss = HardExemplarLoss(**options)
    assert loss(embeddings, LABELS).item() == pytest.approx(by_hand(loss, embeddings, LABELS))


def test_the_authors_mean_over_the_whole_matrix_is_b_minus_1_over_b_of_ours(views):
    queries, gallery, errors = views
    loss = HardExemplarLoss()
    found = loss.with_orientation(queries, gallery, torch.arange(6), errors)
    match, orientation = pairs_by_hand(loss, queries, gallery, errors)
    assert found.match.item() * 5 / 6 == pytest.approx(match)
    assert found.orientation.item() * 5 / 6 == pytest.approx(orientation)


def test_pairs_are_the_queries_as_anchors_and_the_gallery_as_reference(views):
    queries, gallery, errors = views
    labels, loss = torch.arange(6), HardExemplarLoss(reduction="none")
    found = loss.with_orientation(queries, gallery, labels, errors)
    torch.testing.assert_close(found.match, loss(queries, labels, gallery, labels))


# -- the weights ----------------------------------------------------------------------------------


def test_the_authors_numbers():
    """m = 3.75, β = 1.875, w_high = 2.911, w_low = 0.206."""
    loss = HardExemplarLoss()
    assert loss.scaled_margin == pytest.approx(MARGIN)
    assert weigh([0.0]).item() == pytest.approx(2.911, abs=5e-4)
    assert weigh([MARGIN - 1e-9]).item() == pytest.approx(0.206, abs=5e-4)


def test_a_gap_of_half_the_margin_weighs_1():
    """The reference negative, at D_ref = d_p + m/2."""
    assert weigh([MARGIN / 2]).item() == pytest.approx(1.0)


def test_weights_fall_with_the_gap_and_are_flat_below_0():
    inside = weigh(torch.linspace(0, MARGIN - 1e-6, 50).tolist())
    assert (inside.diff() < 0).all()
    assert torch.equal(weigh([-1e4, -3.0, -1e-12]), weigh([0.0]).expand(3))
    assert weigh([1e-9]).item() == pytest.approx(weigh([0.0]).item()), "continuous at 0"


def test_from_the_margin_on_a_triplet_weighs_epsilon_over_the_batch_size():
    assert weigh([MARGIN, MARGIN + 1, 1e4], compared=12.0).tolist() == pytest.approx([0.1 / 12] * 3)
    assert weigh([MARGIN - 1e-9], compared=12.0).item() > 0.2, "it jumps down there"


def test_the_batch_size_is_the_number_of_rows_an_anchor_is_compared_with():
    """Far apart, so that all triplets are easy: the sum of weights is known."""
    queries = torch.eye(5, dtype=torch.float64)
    found = HardExemplarLoss().with_orientation(
        queries, queries, torch.arange(5), torch.ones(5, dtype=torch.float64)
    )
    assert found.weight.item() == pytest.approx(0.1 / 5)


def test_no_gap_overflows():
    for dtype in (torch.float32, torch.float64):
        gaps = torch.tensor([-1e4, 1e4], dtype=dtype, requires_grad=True)
        loss = HardExemplarLoss(margin=1e3, detach_weights=False)
        weights = loss.weigh(gaps, torch.ones(2, dtype=dtype))
        assert weights.isfinite().all()
        assert torch.autograd.grad(weights.sum(), gaps)[0].isfinite().all()
    scaled = HardExemplarLoss(normalize=False, scale=1.0)
    assert scaled(torch.tensor([[0.0], [100.0], [1.0]]), torch.tensor([0, 0, 1])).isfinite()


# -- what passes gradient -------------------------------------------------------------------------


def test_detached_weights_are_constants(embeddings):
    """The gradient is that of the same weights, given as numbers."""
    embeddings.requires_grad_()
    loss = HardExemplarLoss(reduction="sum")
    (found,) = torch.autograd.grad(loss(embeddings, LABELS), embeddings)
    compared = loss.distance(embeddings)
    total = torch.zeros((), dtype=torch.float64)
    for a in range(8):
        for p in range(8):
            for k in range(8):
                if a != p and LABELS[a] == LABELS[p] and LABELS[k] != LABELS[a]:
                    gap = compared[a, k] - compared[a, p]
                    total = total + weight_by_hand(loss, gap.item(), 7) * torch.log1p(
                        torch.exp(-gap)
                    )
    (expected,) = torch.autograd.grad(total, embeddings)
    torch.testing.assert_close(found, expected)


def test_only_undetached_weights_let_the_orientation_move_the_embeddings(views):
    queries, gallery, errors = views
    for detach in (True, False):
        moved = queries.clone().requires_grad_()
        loss = HardExemplarLoss(detach_weights=detach)
        found = loss.with_orientation(moved, gallery, torch.arange(6), errors)
        (gradient,) = torch.autograd.grad(
            found.orientation, moved, allow_unused=True, materialize_grads=True
        )
        assert bool(gradient.abs().sum() > 0) is not detach


def test_undetached_pairs_match_finite_differences(views):
    queries, gallery, errors = (view.clone().requires_grad_() for view in views)
    loss = HardExemplarLoss(detach_weights=False)

    def both(*rows):
        found = loss.with_orientation(*rows[:2], torch.arange(6), rows[2])
        return found.match, found.orientation

    assert gradcheck(both, (queries, gallery, errors))


def test_a_large_batch_is_the_same_with_less_kept(embeddings, monkeypatch):
    embeddings.requires_grad_()
    values = []
    for block in (base.BLOCK, 1):
        monkeypatch.setattr(base, "BLOCK", block)
        value = HardExemplarLoss()(embeddings, LABELS)
        values.append((value, torch.autograd.grad(value, embeddings)[0]))
    assert torch.equal(values[0][0], values[1][0])
    torch.testing.assert_close(values[0][1], values[1][1])


# -- special cases --------------------------------------------------------------------------------


def test_with_weights_of_1_it_is_the_soft_margin_triplet_loss(embeddings):
    plain = TripletLoss(0.0, soft=True, normalize=False)
    scaled = 5.0 * torch.nn.functional.normalize(embeddings, dim=1)
    torch.testing.assert_close(
        HardExemplarLoss(weighted=False)(embeddings, LABELS), plain(scaled, LABELS)
    )


def test_one_pair_costs_nothing(views):
    queries, gallery, errors = (view[:1] for view in views)
    found = HardExemplarLoss().with_orientation(
        queries, gallery, torch.zeros(1, dtype=torch.long), errors
    )
    assert found.match == found.orientation == found.weight == 0


def test_pairs_of_one_class_are_no_negatives_of_each_other(views):
    queries, gallery, errors = views
    loss, labels = HardExemplarLoss(reduction="none"), torch.tensor([0, 0, 1, 1, 2, 2])
    found = loss.with_orientation(queries, gallery, labels, errors).match
    rest = torch.tensor(
        [0, 2, 3, 4, 5]
    )  # without the other pair of class 0; B is then 5, as it is with it
    expected = loss.with_orientation(queries[rest], gallery[rest], labels[rest], errors[rest]).match
    torch.testing.assert_close(found[0], expected[0])


def test_pairs_that_do_not_fit_take_no_part(views):
    queries, gallery, errors = views
    loss, labels = HardExemplarLoss(), torch.arange(6)
    fits = torch.tensor([True, True, False, True, True, True])
    found = loss.with_orientation(queries, gallery, labels, errors, fits)
    expected = loss.with_orientation(queries[fits], gallery[fits], labels[fits], errors[fits])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


# -- orientation ----------------------------------------------------------------------------------


def test_the_orientation_error_is_2_less_twice_the_cosine_of_the_difference(rng):
    truth, predicted = 20 * torch.rand(2, 50, generator=rng, dtype=torch.float64) - 10
    vectors = torch.stack([predicted.sin(), predicted.cos()], dim=1)
    torch.testing.assert_close(
        orientation_errors(vectors, truth), 2 - 2 * (predicted - truth).cos()
    )


def test_the_orientation_error_is_0_only_where_the_angle_is_right_and_at_most_4():
    angles = torch.linspace(-math.pi, math.pi, 360, dtype=torch.float64)
    truth = torch.zeros_like(angles)
    errors = orientation_errors(torch.stack([angles.sin(), angles.cos()], dim=1), truth)
    assert (errors[angles != 0] > 0).all() and errors.max() == pytest.approx(4.0)
    turned = orientation_errors(torch.tensor([[0.0, 1.0]]), torch.tensor([2 * math.pi]))
    assert turned.item() == pytest.approx(0.0, abs=1e-6), "a full turn is no error"


def test_easy_triplets_weigh_epsilon_over_beta_as_printed(embeddings):
    loss = HardExemplarLoss(epsilon=0.3, epsilon_over="beta")
    found = loss.weigh(torch.tensor([4.0]), torch.tensor([7.0]))
    assert found.item() == pytest.approx(0.3 / (MARGIN / 2))
    assert loss(embeddings, LABELS).item() == pytest.approx(by_hand(loss, embeddings, LABELS))
    with pytest.raises(ConfigError, match="margin=0"):
        HardExemplarLoss(margin=0.0, epsilon_over="beta")
