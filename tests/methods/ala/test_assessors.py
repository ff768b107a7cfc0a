"""Assessors: weights between 0 and 1, and a state that goes through training once."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.methods.ala.assessment import LSTMAssessor


@pytest.fixture
def members(rng):
    return torch.randn(12, 3, 4, generator=rng)


@pytest.fixture
def lstm():
    """An assessor that has left its start, where all weights are 1/2."""
    torch.manual_seed(0)
    assessor = LSTMAssessor(12, hidden=8)
    torch.nn.init.normal_(assessor.weight.weight)
    return assessor


def test_is_the_papers_and_starts_at_one_half_for_every_tuple(members):
    assessor = LSTMAssessor(12)
    assert (assessor.sequence.num_layers, assessor.sequence.hidden_size) == (2, 64)
    assert torch.equal(assessor(members).weights, torch.full((12,), 0.5))


def test_centered_weights_do_not_follow_a_common_drift(members):
    torch.manual_seed(0)
    assessor = LSTMAssessor(12, centered=True).double()
    last = assessor.weight
    torch.nn.init.normal_(last.weight)
    before = assessor(members.double()).weights
    torch.nn.init.constant_(last.bias, -40.0)  # 4e-18, if they did
    assert_close(assessor(members.double()).weights, before)
    assert_close(before.logit().mean(), torch.tensor(0.0, dtype=torch.float64))
    assert before.std() > 0.01


def test_two_episodes_are_one_long_sequence_with_the_state_carried(lstm, members):
    whole = lstm(members).weights
    first = lstm(members[:7])
    lstm.advance(first.state)
    second = lstm(members[7:])
    assert_close(torch.cat([first.weights, second.weights]), whole)


def test_passes_no_gradient_to_the_embeddings(lstm, members):
    assert lstm(members.requires_grad_()).weights.sum().requires_grad
    lstm(members).weights.sum().backward()
    assert members.grad is None


@pytest.mark.parametrize("scaled", [True, False])
def test_the_scale_of_embeddings_counts_in_the_paper_alone(lstm, members, scaled):
    lstm.scaled = scaled
    same = torch.allclose(lstm(1e-3 * members).weights, lstm(members).weights, atol=1e-5)
    assert same == scaled
