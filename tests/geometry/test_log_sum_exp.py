"""Sums of exponentials in log space: masks, weights, emptiness, overflow."""

import pytest
import torch
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.geometry import log_one_plus_sum_exp, log_sum_exp


@pytest.fixture
def case(rng):
    logits = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    keep = torch.rand(4, 6, generator=rng) < 0.6
    weights = torch.rand(4, 6, generator=rng, dtype=torch.float64)
    keep[:, 0] = True
    return logits, keep, weights


def test_equals_the_sum_it_stands_for(case):
    logits, keep, weights = case
    assert_close(log_sum_exp(logits, keep), (logits.exp() * keep).sum(dim=1).log())
    assert_close(
        log_sum_exp(logits, keep, weights), (weights * logits.exp() * keep).sum(dim=1).log()
    )
    assert_close(log_one_plus_sum_exp(logits, keep), (1 + (logits.exp() * keep).sum(dim=1)).log())


def test_weights_of_0_take_terms_out(case):
    logits, keep, weights = case
    given = logits.requires_grad_(), torch.zeros_like(weights, requires_grad=True)
    nothing = log_one_plus_sum_exp(given[0], keep, given[1])
    assert nothing.eq(0).all()
    assert all(gradient.eq(0).all() for gradient in grad(nothing.sum(), given))
