"""gamma_for against Theorem 3: the log-exp mean at its γ is the mean of the K smallest or
largest."""

import inspect

import numpy as np
import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.geometry.means import gamma_for, log_exp_mean


@pytest.fixture
def values(rng):
    return torch.randn(5, 7, generator=rng, dtype=torch.float64).exp()


def everything(values):
    return torch.ones_like(values, dtype=torch.bool)


@pytest.mark.parametrize("K", [2, 3, 6])
def test_the_mean_of_the_smallest_or_largest_is_recovered(values, K):
    for sign, largest in ((1, False), (-1, True)):
        gamma = gamma_for(values, sign * K)
        expected = values.topk(K, dim=1, largest=largest).values.mean(dim=1)
        assert (gamma.sign() == sign).all()
        torch.testing.assert_close(
            log_exp_mean(values, everything(values), gamma), expected, rtol=1e-12, atol=0
        )


def test_more_values_need_a_smaller_dial_and_all_of_them_none(values):
    dials = torch.stack([gamma_for(values, K) for K in range(2, 8)])
    assert (dials.diff(dim=0) < 0).all() and dials[-1].eq(0).all()
    assert gamma_for(values, 99).eq(0).all()


def test_one_value_is_the_limit(values):
    found = log_exp_mean(values, everything(values), gamma_for(values, 1))
    torch.testing.assert_close(found, values.amin(dim=1), rtol=1e-12, atol=0)


def test_only_kept_values_count_and_each_row_may_have_its_own_number(values):
    keep = everything(values)
    keep[0, 3:] = False
    own = torch.tensor([2, -2, 3, 4, -6])
    found = log_exp_mean(values, keep, gamma_for(values, own, keep))
    for row, kept, K, b in zip(values, keep, own.tolist(), found, strict=True):
        torch.testing.assert_close(
            b, row[kept].topk(abs(K), largest=K < 0).values.mean(), rtol=1e-12, atol=0
        )


def test_rows_that_settle_nothing_have_gamma_0(values):
    assert gamma_for(torch.full((2, 4), 3.0), 2).eq(0).all()
    assert gamma_for(values, 2, torch.zeros_like(values, dtype=torch.bool)).eq(0).all()
    assert gamma_for(values[:, :0], 2).eq(0).all()


def test_ties_at_the_edge_stay_finite():
    found = gamma_for(torch.tensor([[1.0, 1.0, 5.0, 6.0]]), 2)
    assert found.isfinite().all() and found > 1e4


def test_passes_no_gradient(values):
    assert not gamma_for(values.requires_grad_(), 3).requires_grad


@pytest.mark.parametrize("K", [0, 2.5, torch.tensor(2.0)])
def test_no_values_and_parts_of_one_are_rejected(values, K):
    unchecked = inspect.unwrap(gamma_for)  # as for users, for whom nothing checks types
    with pytest.raises(ConfigError, match=r"a whole number, got "):
        unchecked(values, K)


def test_any_whole_number_will_do(values):
    assert torch.equal(inspect.unwrap(gamma_for)(values, np.int64(3)), gamma_for(values, 3))
