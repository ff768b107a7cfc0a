"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that changes."""

import copy

import pytest
import torch
from torch import nn

from vicinal.assessment import ALAConfig, Assessment, Assessor, LSTMAssessor, PairScoring, TripletScoring
from vicinal.assessment.metric import Metric
from vicinal.assessment.teaching import Teaching
from vicinal.losses import ContrastiveLoss, TripletLoss
from vicinal.models import Embedder
from vicinal.sampling import EpisodeSampler

TRAINING, VALIDATION, WIDTH, DIM = 5, 3, 6, 4
RATES = (0.1, 0.5)  # of backbone and head


class FreeWeights(Assessor):
    """One weight for each place in the sequence, free to move: what a meta-gradient says is what happens."""

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
        return self.layers(inputs) if self.operator is None else self.operator.apply(self.layers(inputs))


@pytest.fixture
def sampler():
    labels = torch.arange(10).repeat_interleave(4).numpy()
    return EpisodeSampler(labels, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)


@pytest.fixture
def episode(sampler, rng):
    """Inputs and labels of both subsets."""
    labels = torch.as_tensor(sampler.labels)[torch.tensor(sampler.epoch(0)[0])]
    centres = torch.randn(10, WIDTH, generator=rng)
    return centres[labels] + torch.randn(len(labels), WIDTH, generator=rng), labels


def make(sampler, assessor, settings, *, scoring=None, operator=None, optimizer=torch.optim.SGD):
    torch.manual_seed(0)
    embedder = Embedder(Backbone(operator), DIM)
    parts = embedder.backbone.parameters(), embedder.head.parameters()
    groups = [{"params": list(part), "lr": rate} for part, rate in zip(parts, RATES, strict=True)]
    metric = Metric(embedder, optimizer(groups), unroll=settings.unroll, factor=settings.virtual_factor)
    return Teaching(metric, scoring or TripletScoring(TripletLoss(margin=1.0)), assessor, sampler, settings)


def teach(teaching, episode):
    return teaching.teach(*episode, teaching.training_pass(*episode))


def lively(**shape):
    """An LSTM that has left its start, where all weights are 1/2 and only its last layer has a gradient."""
    torch.manual_seed(1)
    assessor = LSTMAssessor(3 * DIM, hidden=8, **shape)
    nn.init.normal_(assessor.weight.weight)
    return assessor


def by_autograd(teaching, episode):
    """φ after K steps of Eq. (12) in the order of Algorithm 1, the virtual step of Eq. (10) in autograd's graph."""
    teaching, settings, scoring = copy.deepcopy(teaching), teaching.settings, teaching.scoring
    embedder, assessor, rows = teaching.metric.embedder, teaching.assessor, teaching.sampler.training_rows
    (inputs, unseen), (labels, unseen_labels) = (x.split([rows, len(x) - rows]) for x in episode)
    parameters = dict(embedder.named_parameters())
    scored = scoring(embedder.embed(embedder.features(inputs)), labels, embedder.embed)
    slope = None
    for _ in range(settings.updates):
        weights = assessor(scored.members).weights
        used = weights / weights.mean() if settings.relative else weights
        if slope is None or settings.recompute:
            objective = getattr(used * scored.losses, settings.over)()
            gradients = torch.autograd.grad(objective, list(parameters.values()), create_graph=True)
            tried = {
                name: p - RATES[name.startswith("head.")] * g
                for (name, p), g in zip(parameters.items(), gradients, strict=True)
            }
            after = scoring(teaching.metric.embed(tried, unseen), unseen_labels, embedder.embed).losses
            (slope,) = torch.autograd.grad(getattr(after, settings.over)(), used, retain_graph=True)
        steps = torch.autograd.grad(used @ slope, list(assessor.parameters()))
        with torch.no_grad():
            for parameter, step in zip(assessor.parameters(), steps, strict=True):
                parameter -= settings.rate * step
    return list(assessor.parameters())


@pytest.mark.parametrize("route", ["forward", "double_backward", "difference"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("over", ["mean", "sum"])
@pytest.mark.parametrize("relative", [False, True])
def test_free_weights_descend_the_validation_loss_of_the_virtual_step(
    sampler, episode, route, recompute, over, relative
):
    settings = ALAConfig(
        rate=0.7, optimizer="sgd", updates=2, recompute=recompute, over=over, route=route, relative=relative
    )
    teaching = make(sampler, FreeWeights(TRAINING), settings)
    (reference,) = by_autograd(teaching, episode)
    teach(teaching, episode)
    moved = teaching.assessor.logits.detach()
    assert moved.abs().max() > 1e-4
    tolerance = 1e-2 if route == "difference" else 1e-4
    torch.testing.assert_close(moved, reference.detach(), rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("recompute", [False, True])
def test_every_parameter_of_the_lstm_follows_eq_12(sampler, episode, recompute):
    settings = ALAConfig(rate=0.7, optimizer="sgd", updates=3, recompute=recompute, relative=False)
    teaching = make(sampler, lively(), settings)
    before, reference = copy.deepcopy(list(teaching.assessor.parameters())), by_autograd(teaching, episode)
    teach(teaching, episode)
    for was, now, expected in zip(before, teaching.assessor.parameters(), reference, strict=True):
        assert not torch.equal(was, now)
        torch.testing.assert_close(now, expected, rtol=1e-4, atol=1e-6)


def test_a_tuple_that_pulls_with_the_validation_gradient_gains_weight(sampler, episode):
    """Against ⟨α ∇L_va(θ'), ∇L(T; θ)⟩, one tuple after the other."""
    settings, scoring = ALAConfig(optimizer="sgd", updates=1, relative=False), TripletScoring(TripletLoss(margin=4.0))
    teaching = make(sampler, FreeWeights(TRAINING), settings, scoring=scoring)
    metric, losses = teaching.metric, teaching.training_pass(*episode).scored.losses
    steps = metric.scaled(list(torch.autograd.grad(0.5 * losses.mean(), metric.leaves, retain_graph=True)))
    _, direction = teaching.validate(*episode, steps)
    gradients = [torch.autograd.grad(loss, metric.leaves, retain_graph=True) for loss in losses]
    pulls = torch.stack([sum((u * g).sum() for u, g in zip(direction, one, strict=True)) for one in gradients])
    teach(teaching, episode)
    assert (pulls > 0).any() and (pulls < 0).any()
    assert torch.equal(teaching.assessor.logits.detach().sign(), pulls.sign())


def test_nothing_changes_but_the_assessor(sampler, episode):
    teaching = make(sampler, LSTMAssessor(3 * DIM, hidden=8), ALAConfig(), optimizer=torch.optim.AdamW)
    training = teaching.training_pass(*episode)  # the real pass moves batch norm's statistics, as in any training
    parts = teaching.metric.embedder, teaching.metric.optimizer, teaching.scoring
    before = copy.deepcopy([part.state_dict() for part in parts])
    state, phi = teaching.assessor.hidden_state.clone(), teaching.assessor.weight.weight.detach().clone()
    teaching.teach(*episode, training)
    assert repr(before) == repr([part.state_dict() for part in parts])
    for name, value in teaching.metric.embedder.state_dict().items():
        assert torch.equal(value, before[0][name]), name
    assert all(leaf.grad is None for leaf in teaching.metric.leaves)
    assert torch.equal(teaching.assessor.hidden_state, state)
    assert not torch.equal(teaching.assessor.weight.weight, phi)


def test_the_assessor_never_sees_a_validation_tuple(sampler, episode):
    teaching = make(sampler, LSTMAssessor(3 * DIM, hidden=8), ALAConfig(recompute=True))
    training = teaching.training_pass(*episode)
    seen, inner = [], teaching.assessor.assess
    teaching.assessor.assess = lambda tuples: seen.append(tuples) or inner(tuples)
    teaching.teach(*episode, training)
    assert len(seen) == 3 and all(torch.equal(tuples, seen[0]) for tuples in seen)
    given = training.scored.members.detach().flatten(1)
    torch.testing.assert_close(nn.functional.normalize(seen[0]), nn.functional.normalize(given))


@pytest.mark.parametrize("over", ["mean", "sum"])
@pytest.mark.parametrize(
    "scoring", [TripletScoring(TripletLoss(margin=1.0)), PairScoring(ContrastiveLoss(2.0))], ids=["triplets", "pairs"]
)
def test_losses_are_told_as_means_over_tuples(sampler, episode, over, scoring):
    settings = ALAConfig(over=over, virtual_factor=0.0)  # a step of no length: the validation loss at θ
    teaching = make(sampler, LSTMAssessor(scoring.seen * DIM, hidden=8), settings, scoring=scoring)
    told = teach(teaching, episode)
    embedder, rows = teaching.metric.embedder, sampler.training_rows
    for name, part in (("training", slice(rows)), ("validation", slice(rows, None))):
        embeddings = embedder.embed(embedder.features(episode[0][part]))
        losses = scoring(embeddings, episode[1][part], embedder.embed).losses
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
    teaching = make(sampler, lively(), ALAConfig(), operator=inside, scoring=scoring)
    reference = make(sampler, lively(), ALAConfig(route="double_backward"))
    assert teaching.note is None
    for each in (teaching, reference):
        teach(each, episode)
    assert teaching.route == "double_backward" and reference.note is None
    assert teaching.note == (
        "an operator of the network or the loss has no forward mode: meta-gradients came by double backward."
    )
    for a, b in zip(teaching.assessor.parameters(), reference.assessor.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_errors_of_another_kind_are_not_swallowed(sampler, episode):
    teaching = make(sampler, lively(), ALAConfig())
    training = teaching.training_pass(*episode)
    _, direction = teaching.validate(*episode, [torch.zeros_like(leaf) for leaf in teaching.metric.leaves])
    with pytest.raises(RuntimeError, match="shape"):
        teaching.slopes(direction, training._replace(inputs=training.inputs[:, :3]))
    assert teaching.route == "forward"
