"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that
changes."""

import copy

import pytest
import torch
from tests.methods.ala.small import DIM, RATES, make
from torch import nn
from torch.autograd import grad

from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import LSTMAssessor


def teach(method, batch):
    return method.teach(batch, method.training_pass(batch))


def lively(**shape):
    """An LSTM that has left its start, where all weights are 1/2 and only its last layer has a
    gradient."""
    torch.manual_seed(1)
    assessor = LSTMAssessor(3 * DIM, hidden=8, **shape)
    nn.init.normal_(assessor.weight.weight)
    return assessor


def by_autograd(method, batch):
    """φ after K steps of Eq. (12) in the order of Algorithm 1, the virtual step of Eq. (10) in
    autograd's graph."""
    embedder = copy.deepcopy(method.embedder)
    assessor = copy.deepcopy(method.weigh)
    scoring = method.scoring
    rows = method.sampler.training_rows
    (inputs, unseen), (labels, unseen_labels) = (
        x.tensor_split([rows]) for x in (batch.inputs, batch.labels)
    )
    parameters = dict(embedder.named_parameters())
    scored = scoring(embedder.embed(embedder.features(inputs)), labels)
    slope = None
    for _ in range(method.updates):
        weights = assessor(scored.members).weights
        used = weights / weights.mean() if method.compares_weights else weights
        if slope is None:
            objective = method.add_up(used * scored.losses)
            gradients = grad(objective, list(parameters.values()), create_graph=True)
            tried = {
                name: p - RATES[name.startswith("head.")] * g
                for (name, p), g in zip(parameters.items(), gradients, strict=True)
            }
            after = scoring(method.metric.embed(tried, unseen), unseen_labels).losses
            (slope,) = grad(method.add_up(after), used, retain_graph=True)
        steps = grad(used @ slope, list(assessor.parameters()))
        with torch.no_grad():
            for parameter, step in zip(assessor.parameters(), steps, strict=True):
                parameter -= method.rate * step
    return list(assessor.parameters())


@pytest.mark.parametrize(("over", "relative"), [("mean", True), ("sum", False)])
def test_every_parameter_of_the_lstm_follows_eq_12(sampler, batch, over, relative):
    method = make(sampler, ALA("paper", rate=0.7, over=over, relative=relative), lively())
    before = copy.deepcopy(list(method.weigh.parameters()))
    reference = by_autograd(method, batch)
    teach(method, batch)
    for was, now, expected in zip(before, method.weigh.parameters(), reference, strict=True):
        assert not torch.equal(was, now)
        torch.testing.assert_close(now, expected, rtol=1e-4, atol=1e-6)


def test_nothing_changes_but_the_assessor(sampler, batch):
    method = make(sampler, ALA(), LSTMAssessor(3 * DIM, hidden=8), name="adamw")
    # The real pass moves batch norm's statistics, as in any training.
    training = method.training_pass(batch)
    parts = method.embedder, method.metric_optimizer, method.scoring
    before = copy.deepcopy([part.state_dict() for part in parts])
    state = method.weigh.hidden_state.clone()
    phi = method.weigh.weight.weight.detach().clone()
    method.teach(batch, training)
    assert repr(before) == repr([part.state_dict() for part in parts])
    for name, value in method.embedder.state_dict().items():
        assert torch.equal(value, before[0][name]), name
    assert all(leaf.grad is None for leaf in method.metric.leaves)
    assert torch.equal(method.weigh.hidden_state, state)
    assert not torch.equal(method.weigh.weight.weight, phi)
