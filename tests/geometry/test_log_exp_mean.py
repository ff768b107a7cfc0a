"""The log-exp mean: its limits, its monotone fall, and its digits near gamma = 0."""

import pytest
import torch
from torch.autograd import gradcheck
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


@pytest.mark.parametrize("gamma", [0.0, 1e-9])
def test_gradient_matches_finite_differences(values, keep, gamma):
    assert gradcheck(
        lambda v: log_exp_mean(v, keep, gamma), (values.requires_grad_(),), check_forward_ad=True
    )
