"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that
changes."""

import copy

import pytest
import torch
from tests.methods.ala.small import DIM, RATES, TRAINING, make
from torch import nn

from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import Assessment, Assessor, LSTMAssessor


class FreeWeights(Assessor):
    """One weight for each place in the sequence, free to move: what a meta-gradient says is what
    happens."""

    def __init__(self, count):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(count))

    def assess(self, tuples):
        return Assessment(self.logits.sigmoid())


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
            gradients = torch.autograd.grad(objective, list(parameters.values()), create_graph=True)
            tried = {
                name: p - RATES[name.startswith("head.")] * g
                for (name, p), g in zip(parameters.items(), gradients, strict=True)
            }
            after = scoring(method.metric.embed(tried, unseen), unseen_labels).losses
            (slope,) = torch.autograd.grad(method.add_up(after), used, retain_graph=True)
        steps = torch.autograd.grad(used @ slope, list(assessor.parameters()))
        with torch.no_grad():
            for parameter, step in zip(assessor.parameters(), steps, strict=True):
                parameter -= method.rate * step
    return list(assessor.parameters())


@pytest.mark.parametrize(("over", "relative"), [("mean", True), ("sum", False)])
def test_free_weights_descend_the_validation_loss_of_the_virtual_step(
    sampler, batch, over, relative
):
    settings = ALA("paper", rate=0.7, updates=2, over=over, relative=relative)
    method = make(sampler, settings, FreeWeights(TRAINING))
    (reference,) = by_autograd(method, batch)
    teach(method, batch)
    moved = method.weigh.logits.detach()
    assert moved.abs().max() > 1e-4
    torch.testing.assert_close(moved, reference.detach(), rtol=1e-4, atol=1e-6)


def test_every_parameter_of_the_lstm_follows_eq_12(sampler, batch):
    method = make(sampler, ALA("paper", rate=0.7), lively())
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


def test_the_assessor_never_sees_a_validation_tuple(sampler, batch):
    method = make(sampler, ALA(), LSTMAssessor(3 * DIM, hidden=8))
    training = method.training_pass(batch)
    seen = []
    inner = method.weigh.assess
    method.weigh.assess = lambda tuples: seen.append(tuples) or inner(tuples)
    method.teach(batch, training)
    assert len(seen) == 3 and all(torch.equal(tuples, seen[0]) for tuples in seen)
    given = training.scored.members.detach().flatten(1)
    torch.testing.assert_close(nn.functional.normalize(seen[0]), nn.functional.normalize(given))
