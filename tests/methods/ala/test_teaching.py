"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that
changes."""

import copy

import pytest
import torch
from tests.methods.build import build
from torch import nn

from vicinal.data.records import Batch
from vicinal.losses import ContrastiveLoss, TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import (
    Assessment,
    Assessor,
    LSTMAssessor,
    PairScoring,
    TripletScoring,
)
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder
from vicinal.samplers import EpisodeSampler

TRAINING, VALIDATION, WIDTH, DIM = 5, 3, 6, 4
RATES = (0.1, 0.5)  # of backbone and head
DESCENT = {
    "schedule": "constant",
    "weight_decay": 0.0,
    "learning_rate": RATES[0],
    "head_factor": RATES[1] / RATES[0],
}


class FreeWeights(Assessor):
    """One weight for each place in the sequence, free to move: what a meta-gradient says is what
    happens."""

    def __init__(self, count):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(count))

    def assess(self, tuples):
        return Assessment(self.logits.sigmoid())


class Backbone(nn.Module):
    def __init__(self, operator=None):
        super().__init__()
        self.width, self.operator = WIDTH, operator
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())

    def forward(self, inputs):
        return (
            self.layers(inputs)
            if self.operator is None
            else self.operator.apply(self.layers(inputs))
        )


@pytest.fixture
def sampler():
    labels = torch.arange(10).repeat_interleave(4).numpy()
    return EpisodeSampler(labels, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)


@pytest.fixture
def episode(sampler, rng):
    """Both subsets."""
    rows = torch.tensor(sampler.epoch(0)[0])
    labels = torch.as_tensor(sampler.labels)[rows]
    centers = torch.randn(10, WIDTH, generator=rng)
    return Batch(
        centers[labels] + torch.randn(len(labels), WIDTH, generator=rng),
        labels,
        rows,
        largest_class=2,
    )


def make(sampler, assessor, settings, *, scoring=None, operator=None, optimizer="sgd"):
    torch.manual_seed(0)
    embedder, scoring = (
        Embedder(Backbone(operator), DIM),
        scoring or TripletScoring(TripletLoss(margin=1.0)),
    )
    descent = OptimizerConfig(name=optimizer, momentum=0.0, **DESCENT)
    method = build(settings, embedder, scoring.loss, sampler, descent, labels=sampler.labels)
    method.setup_assessment(scoring, assessor)
    return method


def teach(method, episode):
    return method.teach(episode, method.training_pass(episode))


def lively(**shape):
    """An LSTM that has left its start, where all weights are 1/2 and only its last layer has a
    gradient."""
    torch.manual_seed(1)
    assessor = LSTMAssessor(3 * DIM, hidden=8, **shape)
    nn.init.normal_(assessor.weight.weight)
    return assessor


def by_autograd(method, episode):
    """φ after K steps of Eq. (12) in the order of Algorithm 1, the virtual step of Eq. (10) in
    autograd's graph."""
    embedder, assessor = copy.deepcopy(method.embedder), copy.deepcopy(method.weigh)
    scoring, rows = method.scoring, method.sampler.training_rows
    (inputs, unseen), (labels, unseen_labels) = (
        x.tensor_split([rows]) for x in (episode.inputs, episode.labels)
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
    sampler, episode, forward_mode, over, relative
):
    settings = ALA("paper", rate=0.7, updates=2, over=over, relative=relative)
    method = make(sampler, FreeWeights(TRAINING), settings)
    method.forward_mode = forward_mode
    (reference,) = by_autograd(method, episode)
    teach(method, episode)
    moved = method.weigh.logits.detach()
    assert moved.abs().max() > 1e-4
    torch.testing.assert_close(moved, reference.detach(), rtol=1e-4, atol=1e-6)


def test_every_parameter_of_the_lstm_follows_eq_12(sampler, episode):
    method = make(sampler, lively(), ALA("paper", rate=0.7))
    before, reference = copy.deepcopy(list(method.weigh.parameters())), by_autograd(method, episode)
    teach(method, episode)
    for was, now, expected in zip(before, method.weigh.parameters(), reference, strict=True):
        assert not torch.equal(was, now)
        torch.testing.assert_close(now, expected, rtol=1e-4, atol=1e-6)


def test_a_tuple_that_pulls_with_the_validation_gradient_gains_weight(sampler, episode):
    """Against ⟨α ∇L_va(θ'), ∇L(T; θ)⟩, one tuple after the other."""
    settings, scoring = (
        ALA("paper", over="mean", updates=1),
        TripletScoring(TripletLoss(margin=4.0)),
    )
    method = make(sampler, FreeWeights(TRAINING), settings, scoring=scoring)
    metric, losses = method.metric, method.training_pass(episode).scored.losses
    steps = metric.scaled(
        list(torch.autograd.grad(0.5 * losses.mean(), metric.leaves, retain_graph=True))
    )
    _, direction = method.validate(episode, steps)
    gradients = [torch.autograd.grad(loss, metric.leaves, retain_graph=True) for loss in losses]
    pulls = torch.stack(
        [sum((u * g).sum() for u, g in zip(direction, one, strict=True)) for one in gradients]
    )
    teach(method, episode)
    assert (pulls > 0).any() and (pulls < 0).any()
    assert torch.equal(method.weigh.logits.detach().sign(), pulls.sign())


def test_nothing_changes_but_the_assessor(sampler, episode):
    method = make(sampler, LSTMAssessor(3 * DIM, hidden=8), ALA(), optimizer="adamw")
    training = method.training_pass(
        episode
    )  # the real pass moves batch norm's statistics, as in any training
    parts = method.embedder, method.metric_optimizer, method.scoring
    before = copy.deepcopy([part.state_dict() for part in parts])
    state, phi = method.weigh.hidden_state.clone(), method.weigh.weight.weight.detach().clone()
    method.teach(episode, training)
    assert repr(before) == repr([part.state_dict() for part in parts])
    for name, value in method.embedder.state_dict().items():
        assert torch.equal(value, before[0][name]), name
    assert all(leaf.grad is None for leaf in method.metric.leaves)
    assert torch.equal(method.weigh.hidden_state, state)
    assert not torch.equal(method.weigh.weight.weight, phi)


def test_the_assessor_never_sees_a_validation_tuple(sampler, episode):
    method = make(sampler, LSTMAssessor(3 * DIM, hidden=8), ALA())
    training = method.training_pass(episode)
    seen, inner = [], method.weigh.assess
    method.weigh.assess = lambda tuples: seen.append(tuples) or inner(tuples)
    method.teach(episode, training)
    assert len(seen) == 3 and all(torch.equal(tuples, seen[0]) for tuples in seen)
    given = training.scored.members.detach().flatten(1)
    torch.testing.assert_close(nn.functional.normalize(seen[0]), nn.functional.normalize(given))


@pytest.mark.parametrize(
    ("over", "scoring"),
    [("mean", TripletScoring(TripletLoss(margin=1.0))), ("sum", PairScoring(ContrastiveLoss(2.0)))],
    ids=["triplets", "pairs"],
)
def test_losses_are_told_as_means_over_tuples(sampler, episode, over, scoring):
    assessor = LSTMAssessor(scoring.seen * DIM, hidden=8)
    method = make(sampler, assessor, ALA(over=over), scoring=scoring)
    for group in method.metric_optimizer.param_groups:
        group["lr"] = 0.0  # a step of no length: the validation loss at θ
    told = teach(method, episode)
    embedder, rows = method.embedder, sampler.training_rows
    for name, part in (("training", slice(rows)), ("validation", slice(rows, None))):
        embeddings = embedder.embed(embedder.features(episode.inputs[part]))
        losses = scoring(embeddings, episode.labels[part], embedder.embed).losses
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
def test_falls_back_to_double_backward_and_says_so(sampler, episode, operator, place):
    scoring = InTheLoss(TripletLoss(margin=1.0), operator) if place == "loss" else None
    inside = operator if place == "network" else None
    method = make(sampler, lively(), ALA(), operator=inside, scoring=scoring)
    reference = make(sampler, lively(), ALA())
    reference.forward_mode = False
    assert method.notes == ()
    for each in (method, reference):
        teach(each, episode)
    assert not method.forward_mode
    assert method.notes == (
        "an operator of the network or the loss has no forward mode: meta-gradients use double "
        "backward.",
    )
    for a, b in zip(method.weigh.parameters(), reference.weigh.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_errors_of_another_kind_are_not_swallowed(sampler, episode):
    method = make(sampler, lively(), ALA())
    training = method.training_pass(episode)
    _, direction = method.validate(
        episode, [torch.zeros_like(leaf) for leaf in method.metric.leaves]
    )
    with pytest.raises(RuntimeError, match="shape"):
        method.slopes(direction, training._replace(inputs=training.inputs[:, :3]))
    assert method.forward_mode
