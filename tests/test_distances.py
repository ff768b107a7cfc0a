"""Distances, cosines and inner products: values against differences row by row, derivatives, and
where rows meet."""

import math
from functools import partial

import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from vicinal import distances
from vicinal.distances import (
    cosine_similarity,
    inner_products,
    pairwise_distances,
    row_distances,
    unit_rows,
)
from vicinal.errors import ConfigError

euclidean = partial(pairwise_distances, squared=False)


def by_hand(x, y, squared):
    """One difference at a time, in float64."""
    rows = [[(a.double() - b.double()).square().sum() for b in y] for a in x]
    result = torch.tensor(rows, dtype=torch.float64)
    return result if squared else result.sqrt()


@pytest.fixture
def rows(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.fixture
def floats(rows):
    return lambda *shape: rows(*shape).float()


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_difference_of_rows(rows, squared, dtype):
    x = rows(7, 5).to(dtype)
    y = rows(4, 5).to(dtype)
    assert_close(pairwise_distances(x, y, squared=squared), by_hand(x, y, squared).to(dtype))
    assert_close(pairwise_distances(x, squared=squared), by_hand(x, x, squared).to(dtype))


@pytest.mark.parametrize("squared", [True, False])
def test_blocks_of_rows_do_not_show(rows, squared, monkeypatch):
    x = rows(11, 3).requires_grad_()
    weights = rows(11, 11)
    whole = pairwise_distances(x, squared=squared)
    (gradient,) = grad((whole * weights).sum(), x)
    monkeypatch.setattr(distances, "BLOCK", 30)  # two rows at a time
    monkeypatch.setattr(distances, "CACHED", 0)  # nor does how gradients are transposed
    parts = pairwise_distances(x, squared=squared)
    assert_close(parts, whole)
    assert_close(grad((parts * weights).sum(), x)[0], gradient)


@pytest.mark.parametrize("squared", [True, False])
def test_derivatives_of_first_and_second_order_and_forward_mode(rows, squared):
    x = rows(4, 3).requires_grad_()
    y = rows(3, 3).requires_grad_()

    between = partial(pairwise_distances, squared=squared)
    for compare, given in (
        # A distance to itself has a kink, not a derivative.
        (lambda x: between(x)[0, 1:], (x,)),
        (between, (x, y)),
    ):
        assert gradcheck(compare, given, check_forward_ad=True)
        assert gradgradcheck(compare, given, fast_mode=True)


def test_rows_that_meet_have_distance_0_and_pass_no_gradient(floats):
    x = floats(3, 8)[[0, 0, 1, 2]].requires_grad_()
    found = euclidean(x)
    assert found[0, 1] == 0 and found.diagonal().eq(0).all()
    (gradient,) = grad(found[0, 1] + found.diagonal().sum(), x)
    assert gradient.eq(0).all()
    assert grad(euclidean(x * 0).sum(), x)[0].eq(0).all()


def test_rows_that_agree_up_to_rounding_meet(floats):
    """Else 1/d, some 1e7, would multiply their rounding: ten such rows pulled with 30 where 18 is
    the most."""
    x = unit_rows(floats(20, 64))
    x[:10] = x[0] + 6e-9 * floats(10, 64).sign()
    x.requires_grad_()
    found = euclidean(x)[:10, :10]
    assert len(x[:10].unique(dim=0)) == 10 and found.eq(0).all()
    assert grad(found.sum(), x)[0].abs().max() < 1e-4


def test_second_derivatives_stay_finite_where_rows_meet(rows):
    x = rows(2, 3)[[0, 0, 1]].requires_grad_()
    (gradient,) = grad(euclidean(x).sum(), x, create_graph=True)
    assert grad(gradient.square().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("distance", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_near_rows_keep_their_digits(floats, distance):
    """|x|² + |y|² - 2xy alone would give 0 or 5e-4 for the last three."""
    x = unit_rows(floats(40, 128))
    y = x + distance * unit_rows(floats(40, 128))
    found = euclidean(x, y).diagonal()
    assert_close(found.double(), by_hand(x, y, False).diagonal(), rtol=1e-5, atol=0)


def test_collapsed_rows_far_from_the_origin_keep_their_digits(floats, rows):
    x = 100 + 1e-3 * floats(30, 16)
    weights = rows(30, 30)
    assert_close(euclidean(x).double(), by_hand(x, x, False), rtol=1e-5, atol=0)
    gradients = []
    for given in (x, x.double()):
        given.requires_grad_()
        (gradient,) = grad((euclidean(given) * weights).sum(), given)
        gradients.append(gradient.double())
    assert_close(*gradients, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "compare",
    [lambda x, y: pairwise_distances(x, y, squared=True), cosine_similarity, inner_products],
)
def test_own_rows_for_each_row_are_compared_like_shared_ones(rows, compare):
    x = rows(5, 3)
    y = rows(4, 3)
    assert_close(compare(x, y.expand(5, 4, 3)), compare(x, y))
    own = rows(5, 4, 3)
    expected = torch.stack([compare(x[i : i + 1], own[i])[0] for i in range(5)])
    assert_close(compare(x, own), expected)


def test_a_zero_row_has_no_direction_and_passes_no_gradient(rows):
    x = torch.cat([rows(2, 4), torch.zeros(1, 4, dtype=torch.float64)]).requires_grad_()
    found = cosine_similarity(x)
    assert found[2].eq(0).all()
    (gradient,) = grad(found.sum(), x)
    assert gradient.isfinite().all() and gradient[2].eq(0).all()


def test_nothing_to_compare_is_an_empty_matrix_that_backward_passes(rows):
    x = rows(3, 4).requires_grad_()
    for n, m in ((3, 0), (0, 3), (0, 0)):
        found = euclidean(x[:n], x[:m])
        assert found.shape == (n, m)
        found.sum().backward()


def test_what_is_not_a_number_stays_visible(rows):
    x = rows(3, 4)
    x[1, 2] = torch.nan
    assert euclidean(x)[0].isnan().any()


def test_a_backward_pass_inside_autocast_keeps_its_digits_too(floats):
    x = floats(6, 32).requires_grad_()
    y = floats(5, 32)
    (gradient,) = grad(euclidean(x, y).sum(), x)
    with torch.autocast("cpu", torch.bfloat16):
        (inside,) = grad(euclidean(x, y).sum(), x)
    assert torch.equal(inside, gradient)


@pytest.mark.gpu
@pytest.mark.parametrize("distance", [0.0, 6e-9, 1e-5, 1e-3, 1.0])
def test_the_device_resolves_near_rows_too(floats, distance):
    x = unit_rows(floats(40, 64))
    y = x + distance * unit_rows(floats(40, 64))
    given = [side.cuda().requires_grad_() for side in (x, y)]
    found = euclidean(*given)
    assert_close(found.cpu(), euclidean(x, y), rtol=1e-5, atol=1e-6)
    assert all(gradient.isfinite().all() for gradient in grad(found.sum(), given))


def poincare_by_hand(x, y, c):
    """Möbius addition and artanh as Ermolov et al. (2022) print them, one pair at a time."""

    def distance(u, v):
        uv = u @ v
        uu = u @ u
        vv = v @ v
        above = (1 + 2 * c * uv + c * vv) * u + (1 - c * uu) * v
        length = above.norm() / (1 + 2 * c * uv + c**2 * uu * vv)
        return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * length)

    return torch.stack([torch.stack([distance(-u, v) for v in y]) for u in x])


@pytest.mark.parametrize("c", [0.1, 1.0, 3.0])
def test_poincare_distance_equals_its_three_forms(rows, c):
    x, y = (distances.exponential_map(rows(n, 4), c, clip=2.3) for n in (5, 3))
    found = distances.Poincare(curvature=c)(x, y)
    assert_close(found, poincare_by_hand(x, y, c))
    room = (1 - c * x.square().sum(1))[:, None] * (1 - c * y.square().sum(1))
    # Nickel and Kiela 2017.
    arcosh = torch.acosh(1 + 2 * c * by_hand(x, y, squared=True) / room) / math.sqrt(c)
    assert_close(found, arcosh)
    three_axes = distances.Poincare(curvature=c)(x, y.expand(5, 3, 4))
    assert_close(three_axes, found)


def test_poincare_distance_of_near_and_equal_points_and_at_the_rim(floats):
    x = 0.3 * unit_rows(floats(3, 4))
    near = distances.Poincare()(x, x + 1e-5)
    assert_close(
        near.double(), poincare_by_hand(x.double(), (x + 1e-5).double(), 1.0), rtol=1e-3, atol=0
    )
    assert (distances.Poincare()(x).diagonal() == 0).all()
    rim = unit_rows(floats(3, 4)).requires_grad_()
    far = distances.Poincare()(rim)
    assert far.isfinite().all() and grad(far.sum(), rim)[0].isfinite().all()
    for wrong in ({"curvature": 0.0}, {"normalize": True}):
        with pytest.raises(ConfigError, match="curvature is above 0"):
            distances.Poincare(**wrong)


def test_exponential_map_clips_and_has_the_printed_formula(rows):
    x = 3 * rows(6, 4)
    c = 0.1
    r = 2.3
    lengths = x.norm(dim=1, keepdim=True)
    v = x * torch.minimum(torch.ones_like(lengths), r / lengths)
    length = math.sqrt(c) * v.norm(dim=1, keepdim=True)
    assert_close(distances.exponential_map(x, c, r), torch.tanh(length) * v / length)
    # Never on the rim.
    assert (distances.exponential_map(1e6 * x.float(), 1.0, 1e9).norm(dim=1) < 1).all()
    assert (distances.exponential_map(0 * x, c, r) == 0).all()


@pytest.mark.parametrize(
    "distance",
    [
        distances.Euclidean(),
        distances.Euclidean(squared=True, normalize=False),
        distances.Cosine(),
        distances.DotProduct(),
        distances.SignalToNoise(),
        distances.Negative(distances.Euclidean(scale=2.0)),
    ],
    ids=repr,
)
def test_rows_that_are_normalized_once_are_compared_alike(distance, rows):
    x = rows(6, 4)
    y = rows(3, 4)
    given, compare = distance.normalized_once(torch.cat([x, y]))
    assert_close(compare(given[:6], given[6:]), distance(x, y))


@pytest.mark.parametrize("far", [1e7, 1e20])
@pytest.mark.parametrize("squared", [True, False])
def test_a_row_far_off_costs_the_others_no_digit(floats, far, squared):
    x = floats(10, 4)
    x[9] += far
    x.requires_grad_()
    found = pairwise_distances(x, squared=squared)
    expected = row_distances(x[:, None].double(), x[None].double(), squared=squared)
    assert_close(found, expected.float(), rtol=1e-5, atol=0)
    if far < 1e10:
        (gradient,) = grad(found[:9, :9].sum(), x)
        (by_hand,) = grad(row_distances(x[:9, None], x[None, :9], squared=squared).sum(), x)
        assert_close(gradient, by_hand, rtol=1e-4, atol=1e-4)
