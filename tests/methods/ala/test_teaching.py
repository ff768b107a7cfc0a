"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that
changes."""

import copy
from functools import partial

import pytest
import torch
from tests.methods.ala.small import DIM, RATES, TRAINING, Backbone, make
from torch import nn

from vicinal.losses import ContrastiveLoss, TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import (
    Assessment,
    Assessor,
    LSTMAssessor,
    PairScoring,
    TripletScoring,
)


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
    scored = scoring(embedder.embed(embedder.features(inputs)), labels, embedder.embed)
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
            after = scoring(
                method.metric.embed(tried, unseen), unseen_labels, embedder.embed
            ).losses
            (slope,) = torch.autograd.grad(method.add_up(after), used, retain_graph=True)
        steps = torch.autograd.grad(used @ slope, list(assessor.parameters()))
        with torch.no_grad():
            for parameter, step in zip(assessor.parameters(), steps, strict=True):
                parameter -= method.rate * step
    return list(assessor.parameters())


@pytest.mark.parametrize("forward_mode", [True, False])
@pytest.mark.parametrize(("over", "relative"), [("mean", True), ("sum", False)])
def test_free_weights_descend_the_validation_loss_of_the_virtual_step(
    sampler, batch, forward_mode, over, relative
):
    settings = ALA("paper", rate=0.7, updates=2, over=over, relative=relative)
    method = make(sampler, settings, FreeWeights(TRAINING))
    method.forward_mode = forward_mode
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


def test_a_tuple_that_pulls_with_the_validation_gradient_gains_weight(sampler, batch):
    """Against ⟨α ∇L_va(θ'), ∇L(T; θ)⟩, one tuple after the other."""
    settings = ALA("paper", over="mean", updates=1)
    scoring = TripletScoring(TripletLoss(margin=4.0))
    method = make(sampler, settings, FreeWeights(TRAINING), scoring=scoring)
    metric = method.metric
    losses = method.training_pass(batch).scored.losses
    steps = metric.scaled(
        list(torch.autograd.grad(0.5 * losses.mean(), metric.leaves, retain_graph=True))
    )
    _, direction = method.validate(batch, steps)
    gradients = [torch.autograd.grad(loss, metric.leaves, retain_graph=True) for loss in losses]
    pulls = torch.stack(
        [sum((u * g).sum() for u, g in zip(direction, one, strict=True)) for one in gradients]
    )
    teach(method, batch)
    assert (pulls > 0).any() and (pulls < 0).any()
    assert torch.equal(method.weigh.logits.detach().sign(), pulls.sign())


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


@pytest.mark.parametrize(
    ("over", "scoring"),
    [("mean", TripletScoring(TripletLoss(margin=1.0))), ("sum", PairScoring(ContrastiveLoss(2.0)))],
    ids=["triplets", "pairs"],
)
def test_losses_are_told_as_means_over_tuples(sampler, batch, over, scoring):
    assessor = LSTMAssessor(scoring.seen * DIM, hidden=8)
    method = make(sampler, ALA(over=over), assessor, scoring=scoring)
    for group in method.metric_optimizer.param_groups:
        group["lr"] = 0.0  # a step of no length: the validation loss at θ
    told = teach(method, batch)
    embedder = method.embedder
    rows = sampler.training_rows
    for name, part in (("training", slice(rows)), ("validation", slice(rows, None))):
        embeddings = embedder.embed(embedder.features(batch.inputs[part]))
        losses = scoring(embeddings, batch.labels[part], embedder.embed).losses
        torch.testing.assert_close(told[f"episode/{name}"], losses.mean().detach())
    assert told["virtual_step/relative_length"] == 0


class OldStyle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WithoutJVP(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class InTheLoss(TripletScoring):
    """Triplets whose losses pass through an operator of the user's."""

    def __init__(self, loss, operator):
        super().__init__(loss)
        self.operator = operator

    def forward(self, embeddings, labels, head):
        scored = super().forward(embeddings, labels, head)
        return scored._replace(losses=self.operator.apply(scored.losses))


@pytest.mark.parametrize("operator", [OldStyle, WithoutJVP])
@pytest.mark.parametrize("place", ["network", "loss"])
def test_falls_back_to_double_backward_and_says_so(sampler, batch, operator, place):
    scoring = InTheLoss(TripletLoss(margin=1.0), operator) if place == "loss" else None
    inside = operator if place == "network" else None
    method = make(sampler, ALA(), lively(), backbone=partial(Backbone, inside), scoring=scoring)
    reference = make(sampler, ALA(), lively())
    reference.forward_mode = False
    assert method.notes == ()
    for each in (method, reference):
        teach(each, batch)
    assert not method.forward_mode
    assert method.notes == (
        "an operator of the network or the loss has no forward mode: meta-gradients use double "
        "backward.",
    )
    for a, b in zip(method.weigh.parameters(), reference.weigh.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_errors_of_another_kind_are_not_swallowed(sampler, batch):
    method = make(sampler, ALA(), lively())
    training = method.training_pass(batch)
    _, direction = method.validate(batch, [torch.zeros_like(leaf) for leaf in method.metric.leaves])
    with pytest.raises(RuntimeError, match="shape"):
        method.slopes(direction, training._replace(inputs=training.inputs[:, :3]))
    assert method.forward_mode
