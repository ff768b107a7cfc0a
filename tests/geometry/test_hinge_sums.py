"""hinge_sums against the three loops that it avoids."""

import sys

import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

from vicinal.geometry import hinge_sums
from vicinal.geometry.hinge_sums import FEW

WIDTHS = [1, 2, FEW, FEW + 1, 13]  # both ways of counting


def by_hand(positive, negative, keep_positive, keep_negative, margin):
    sums = []
    counts = []
    for d_p, d_n, kept_p, kept_n in zip(
        positive, negative, keep_positive, keep_negative, strict=True
    ):
        terms = [max(0.0, float(p - n) + margin) for p in d_p[kept_p] for n in d_n[kept_n]]
        sums.append(sum(terms))
        counts.append(sum(term > 0 for term in terms))
    return torch.tensor(sums, dtype=positive.dtype), torch.tensor(counts, dtype=positive.dtype)


@pytest.fixture
def case(rng):
    def make(n, p, m, dtype=torch.float64):
        positive, negative = (torch.rand(n, k, generator=rng, dtype=dtype) for k in (p, m))
        return positive, negative, *(torch.rand(n, k, generator=rng) < 0.7 for k in (p, m))

    return make


@pytest.mark.parametrize("margin", [0.0, 0.3, -0.2])
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_and_counts_equal_the_loops(case, width, margin):
    given = case(8, width, 9)
    for found, expected in zip(hinge_sums(*given, margin), by_hand(*given, margin), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("width", [FEW, FEW + 1])
def test_blocks_of_rows_do_not_show(case, width, monkeypatch):
    given = case(7, width, 9)
    whole = hinge_sums(*given, 0.1)
    monkeypatch.setattr(sys.modules[hinge_sums.__module__], "BLOCK", 20)  # two rows at a time
    for part, found in zip(hinge_sums(*given, 0.1), whole, strict=True):
        assert torch.equal(part, found)


@pytest.mark.parametrize("width", [2, FEW + 1])
def test_derivatives_of_first_and_second_order_and_forward_mode(case, width):
    positive, negative, *keep = case(3, width, 4)

    def sums(positive, negative):
        return hinge_sums(positive, negative, *keep, 0.1)[0]

    given = (positive.requires_grad_(), negative.requires_grad_())
    assert gradcheck(sums, given, check_forward_ad=True)
    assert gradgradcheck(lambda *both: sums(*both).square(), given)


@pytest.mark.parametrize("width", [FEW, FEW + 1])
def test_a_term_of_exactly_0_is_not_active(width):
    positive = torch.full((1, width), 1.0)
    negative = torch.tensor([[1.0, 2.0]])
    sums, counts = hinge_sums(positive, negative, positive > 0, negative > 0)
    assert sums.item() == counts.item() == 0


@pytest.mark.parametrize("width", [0, 2, FEW + 1])
@pytest.mark.parametrize("others", [0, 3])
def test_an_anchor_without_terms_has_0_and_passes_gradient_0(width, others):
    positive = torch.rand(2, width, requires_grad=True)
    negative = torch.rand(2, others, requires_grad=True)
    none, nobody = (torch.zeros_like(side, dtype=torch.bool) for side in (positive, negative))
    for keep in ((none, ~nobody), (~none, nobody), (none, nobody)):
        sums, counts = hinge_sums(positive, negative, *keep, 5.0)
        assert sums.tolist() == counts.tolist() == [0, 0]
        gradients = grad(sums.sum(), (positive, negative))
        assert all(gradient.eq(0).all() for gradient in gradients)


@pytest.mark.parametrize("width", [FEW, 13])
def test_float32_keeps_its_digits_where_excesses_are_small(case, width):
    """Thresholds near 1000, excesses near 1e-2: sums of thresholds and of distances alone would
    cancel."""
    positive, negative, *keep = case(4, width, 300)
    positive = 1000 + 0.01 * positive
    negative = 1000 + 0.01 * negative
    exact, _ = by_hand(positive.float(), negative.float(), *keep, 0.0)
    found, _ = hinge_sums(positive.float(), negative.float(), *keep)
    assert_close(found, exact, rtol=1e-5, atol=0)
