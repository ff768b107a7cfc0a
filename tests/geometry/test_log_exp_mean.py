"""The log-exp mean: its limits, its monotone fall, and its digits near gamma = 0."""

import math

import pytest
import torch
from torch.autograd import grad, gradcheck
from torch.testing import assert_close

from vicinal.geometry import log_exp_mean


@pytest.fixture
def values(rng):
    return torch.randn(4, 6, generator=rng, dtype=torch.float64)


@pytest.fixture
def keep(rng):
    mask = torch.rand(4, 6, generator=rng) < 0.6
    mask[:, :2] = True
    return mask


def by_hand(row, gamma):
    return -math.log(sum(math.exp(-gamma * float(a)) for a in row) / len(row)) / gamma


@pytest.mark.parametrize("gamma", [-3.0, -0.4, 0.2, 5.0])
def test_equals_the_printed_formula(values, keep, gamma):
    expected = [by_hand(row[kept], gamma) for row, kept in zip(values, keep, strict=True)]
    assert_close(log_exp_mean(values, keep, gamma), torch.tensor(expected, dtype=torch.float64))


def test_limits_are_maximum_mean_and_minimum(values, keep):
    kept = [row[mask] for row, mask in zip(values, keep, strict=True)]
    for gamma, limit in ((-1e6, torch.amax), (0.0, torch.mean), (1e6, torch.amin)):
        expected = torch.stack([limit(row, dim=0) for row in kept])
        assert_close(log_exp_mean(values, keep, gamma), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("gamma", [1e-300, 1e-12, 1e-6, -1e-4, 1e-2])
def test_keeps_its_digits_near_0(values, keep, gamma):
    """Mean - gamma/2 variance + gamma²/6 third cumulant; the plain formula is off by 1e-4 at gamma
    = 1e-12."""
    for row, kept, found in zip(values, keep, log_exp_mean(values, keep, gamma), strict=True):
        offsets = row[kept] - row[kept].mean()
        series = (
            row[kept].mean()
            - gamma / 2 * offsets.square().mean()
            + gamma**2 / 6 * offsets.pow(3).mean()
        )
        assert_close(found, series, rtol=0, atol=1e-14 + abs(gamma) ** 3)


@pytest.mark.parametrize("gamma", [-30.0, 0.0, 1e-9, 2.0])
def test_gradient_matches_finite_differences(values, keep, gamma):
    assert gradcheck(
        lambda v: log_exp_mean(v, keep, gamma), (values.requires_grad_(),), check_forward_ad=True
    )


def test_a_row_that_keeps_nothing_is_0_and_passes_no_gradient(values):
    values.requires_grad_()
    for gamma in (0.0, 0.1, 100.0):
        for given in (values, values[:, :0]):
            found = log_exp_mean(given, torch.zeros_like(given, dtype=torch.bool), gamma)
            assert found.eq(0).all()
            assert grad(found.sum(), values)[0].eq(0).all()


def test_stays_finite_where_a_plain_exponential_overflows(values, keep):
    values = values.float().requires_grad_()
    for gamma, extreme in ((5000.0, torch.amin), (-5000.0, torch.amax)):
        found = log_exp_mean(values, keep, gamma)
        expected = extreme(values.masked_fill(~keep, gamma), dim=1)
        assert_close(found, expected, atol=1e-3, rtol=0)
        assert grad(found.sum(), values)[0].isfinite().all()
