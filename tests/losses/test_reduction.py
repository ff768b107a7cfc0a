"""Terms to numbers."""

import inspect

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.losses import ContrastiveLoss
from vicinal.losses.loss import Terms, reduce

TERMS = Terms(torch.tensor([6.0, 1.0, 0.0]), torch.tensor([3.0, 1.0, 0.0]))


def test_the_mean_is_over_terms_not_over_anchors():
    assert reduce(TERMS, "mean").item() == 7 / 4
    assert reduce(TERMS, "sum").item() == 7
    assert reduce(TERMS, "none").tolist() == [2, 1, 0]


def test_nothing_is_0():
    nothing = Terms(torch.zeros(2), torch.zeros(2))
    assert [reduce(nothing, how).sum().item() for how in ("mean", "sum", "none")] == [0, 0, 0]


def test_an_unknown_reduction_is_rejected_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'none'"):
        inspect.unwrap(ContrastiveLoss.__init__)(
            ContrastiveLoss(), reduction="nonee"
        )  # past the tests' type checks
