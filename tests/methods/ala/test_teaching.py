"""Teaching an assessor: K updates against autograd through the virtual step, and nothing else that
changes."""

import copy

import pytest
import torch
from tests.methods.ala.small import DIM, LABELS, RATES, VALIDATION, WIDTH, make
from torch import nn
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.losses import ContrastiveLoss, MarginLoss, TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import LSTMAssessor
from vicinal.methods.ala.meta_gradient import Metric
from vicinal.models import Embedder, ResNet, SmallConvNet
from vicinal.samplers import EpisodeSampler


def teach(method, batch):
    return method.teach(batch, method.training_pass(batch))


def lively(members=3):
    """An LSTM that has left its start, where all weights are 1/2 and only its last layer has a
    gradient."""
    torch.manual_seed(1)
    assessor = LSTMAssessor(members * DIM, hidden=8)
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
            if method.meta_gradient == "first_order":  # the derivative at a step of no length
                gradients = [g - g.detach() for g in gradients]
            tried = {
                f"embedder.{name}": p - RATES[name.startswith("head.")] * g
                for (name, p), g in zip(parameters.items(), gradients, strict=True)
            }
            after = scoring(method.metric.embed(tried, unseen), unseen_labels).losses
            (slope,) = grad(method.add_up(after), used, retain_graph=True)
        steps = grad(used @ slope, list(assessor.parameters()))
        with torch.no_grad():
            for parameter, step in zip(assessor.parameters(), steps, strict=True):
                parameter -= method.rate * step
    return list(assessor.parameters())


@pytest.mark.parametrize("meta_gradient", ["exact", "first_order"])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    ("loss", "units"),
    [
        (TripletLoss(1.0), "triplets"),
        (TripletLoss(2.0, squared=False, normalize=False), "triplets"),
        (ContrastiveLoss(2.0), "pairs"),
        (MarginLoss(), "triplets"),
    ],
)
def test_every_parameter_of_the_lstm_follows_eq_12(
    sampler, batch, loss, units, relative, meta_gradient
):
    settings = ALA("paper", rate=0.7, units=units, relative=relative, meta_gradient=meta_gradient)
    members = 2 if units == "pairs" else 3
    method = make(sampler, settings, lively(members), loss=loss)
    before = copy.deepcopy(list(method.weigh.parameters()))
    reference = by_autograd(method, batch)
    teach(method, batch)
    for was, now, expected in zip(before, method.weigh.parameters(), reference, strict=True):
        assert not torch.equal(was, now)
        assert_close(now, expected, rtol=1e-4, atol=1e-6)


def taught(batch, meta_gradient, assessor, *, rate=1.0):
    """How far all parameters of an assessor move in one update, by virtual steps at ``rate`` times
    the rate, over that rate."""
    classes = len(batch.labels.unique()) - VALIDATION
    sampler = EpisodeSampler(
        LABELS, training_classes=classes, validation_classes=VALIDATION, seed=0
    )
    settings = ALA("paper", rate=1.0, updates=1, meta_gradient=meta_gradient)
    method = make(sampler, settings, assessor, loss=TripletLoss(margin=8.0))
    for group in method.metric_optimizer.param_groups:
        group["lr"] *= rate
    before = nn.utils.parameters_to_vector(method.weigh.parameters()).detach()
    teach(method, batch)
    return (nn.utils.parameters_to_vector(method.weigh.parameters()).detach() - before) / rate


def test_first_order_is_exact_where_the_virtual_step_leads_nowhere(rng):
    """Two triplets with one anchor, each other's positive and negative: under equal weights their
    gradients cancel, but not their slopes."""
    inputs = torch.randn(4 + 2 * VALIDATION, WIDTH, generator=rng)
    inputs[1] = inputs[0]
    labels = torch.tensor([0, 1, 0, 1, 2, 3, 4, 2, 3, 4])
    batch = Batch(inputs, labels, torch.arange(len(labels)), largest_class=2)
    exact, first = (
        taught(batch, form, LSTMAssessor(3 * DIM, hidden=8)) for form in ("exact", "first_order")
    )
    assert exact.abs().max() > 1e-3
    assert_close(first, exact, rtol=1e-3, atol=1e-7)


def test_what_first_order_leaves_out_falls_with_the_rate_of_the_virtual_step(batch):
    """It is -α² ⟨∇²L_va g, ∇L(T)⟩ beside slopes of α: a tenth of the rate, a tenth of
    it."""
    lost = []
    for rate in (0.01, 0.001):
        exact, first = (
            taught(batch, form, lively(), rate=rate) for form in ("exact", "first_order")
        )
        lost.append(float((first - exact).norm() / exact.norm()))
    assert lost[0] > 1e-3
    assert 8 < lost[0] / lost[1] < 12


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


@pytest.mark.parametrize(
    "backbone",
    [lambda: SmallConvNet(channels=3, widths=(4, 8)), lambda: ResNet(18, freeze_norm=True)],
)
def test_forward_mode_passes_through_the_real_backbones(backbone):
    torch.manual_seed(0)
    embedder = Embedder(backbone(), 8).train()
    metric = Metric(embedder, torch.optim.SGD(embedder.parameters(), lr=0.01))
    inputs = torch.randn(4, 3, 32, 32)
    z = embedder.embed(metric.features(inputs))
    direction = [
        torch.randn_like(leaf) * leaf.norm() / leaf.numel() ** 0.5 for leaf in metric.leaves
    ]
    cotangent = torch.zeros_like(z, requires_grad=True)  # ∇(c·z) is linear in c
    gradients = grad(z, metric.leaves, cotangent, create_graph=True)
    (exact,) = grad(gradients, cotangent, direction)
    assert_close(metric.tangents(direction, inputs), exact, rtol=1e-3, atol=1e-3)
