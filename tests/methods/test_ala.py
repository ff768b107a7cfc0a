"""DML-ALA: the bilevel step by its parts, against the equations and against its plain twin."""

import copy

import pytest
import torch
from torch import nn

from vicinal.assessment import (
    Assessing,
    Assessment,
    Assessor,
    ConstantAssessor,
    EpisodeLoss,
    LSTMAssessor,
    PairScoring,
    TripletScoring,
)
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import ContrastiveLoss, MarginLoss, TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala_variants import build_variant
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import EpisodeSampler

TRAINING, VALIDATION, WIDTH, DIM = 5, 3, 6, 4
PLAIN_DESCENT = Assessing(relative=False)


class FreeWeights(Assessor):
    """One weight for each place in the sequence, free to move: what a meta-gradient says is what happens."""

    def __init__(self, count):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(count))

    def assess(self, tuples):
        return Assessment(self.logits.sigmoid())


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = WIDTH
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())

    def forward(self, inputs):
        return self.layers(inputs)


@pytest.fixture
def sampler():
    labels = torch.arange(10).repeat_interleave(4).numpy()
    return EpisodeSampler(labels, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)


@pytest.fixture
def batch(sampler, rng):
    rows = torch.tensor(sampler.epoch(0)[0])
    centres = torch.randn(10, WIDTH, generator=rng)
    labels = torch.as_tensor(sampler.labels)[rows]
    return Batch(centres[labels] + torch.randn(len(rows), WIDTH, generator=rng), labels, rows, largest_class=2)


def make(sampler, assessor=None, settings=PLAIN_DESCENT, *, loss=None, optimizer=None, scoring=TripletScoring):
    torch.manual_seed(0)
    embedder = Embedder(Backbone(), DIM)
    scoring = scoring(loss or TripletLoss(margin=1.0))
    parts = embedder.backbone.parameters(), embedder.head.parameters(), scoring.parameters()
    groups = [{"params": list(part), "lr": rate} for part, rate in zip(parts, (0.1, 0.5, 0.1), strict=True)]
    optimizer = (optimizer or torch.optim.SGD)([group for group in groups if group["params"]])
    return ALA(embedder, scoring, assessor or LSTMAssessor(scoring.seen * DIM, hidden=8), sampler, optimizer, settings)


def subset(method, batch):
    rows = method.sampler.training_rows
    return batch.inputs[:rows], batch.labels[:rows]


def test_a_constant_assessor_takes_the_baseline_step_times_its_weight(sampler, batch):
    method = make(sampler, ConstantAssessor(0.3))
    twin = copy.deepcopy(method.embedder)
    inputs, labels = subset(method, batch)
    loss = method.scoring(twin.embed(twin.features(inputs)), labels, twin.embed).losses.mean()
    loss.backward()
    scalars = method.step(batch)
    torch.testing.assert_close(scalars["loss"], 0.3 * loss.detach())
    for (name, after), before in zip(method.embedder.named_parameters(), twin.parameters(), strict=True):
        rate = 0.5 if name.startswith("head.") else 0.1
        torch.testing.assert_close(after.detach(), (before - rate * 0.3 * before.grad).detach())


def test_weights_multiply_gradients_and_nothing_flows_through_them(sampler, batch):
    method = make(sampler)
    nn.init.normal_(method.assessor.weight.weight)
    twin, assessor = copy.deepcopy(method.embedder), copy.deepcopy(method.assessor)
    method.settings = Assessing(relative=False, updates=0)
    method.step(batch)
    inputs, labels = subset(method, batch)
    scored = method.scoring(twin.embed(twin.features(inputs)), labels, twin.embed)
    weights = assessor(scored.members).weights.detach()
    total = [torch.zeros_like(p) for p in twin.parameters()]
    for weight, loss in zip(weights, scored.losses, strict=True):
        parts = torch.autograd.grad(loss, list(twin.parameters()), retain_graph=True)
        total = [t + weight * part / TRAINING for t, part in zip(total, parts, strict=True)]
    for (name, after), before, step in zip(method.embedder.named_parameters(), twin.parameters(), total, strict=True):
        torch.testing.assert_close(after, before - (0.5 if name.startswith("head.") else 0.1) * step)


@pytest.mark.parametrize("route", ["forward", "double_backward", "difference"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("over", ["mean", "sum"])
@pytest.mark.parametrize("relative", [False, True])
def test_teaching_descends_the_validation_loss_of_the_virtual_step(sampler, batch, route, recompute, over, relative):
    """One step of plain descent on free weights against autograd through Eqs. (10) and (11), twice."""
    settings = Assessing(
        rate=0.7, optimiser="sgd", updates=2, recompute=recompute, over=over, route=route, relative=relative
    )
    method = make(sampler, FreeWeights(TRAINING), settings)
    reference = by_hand(method, batch)
    method.step(batch)
    moved = method.assessor.logits.detach()
    assert moved.abs().max() > 1e-4
    torch.testing.assert_close(moved, reference, rtol=1e-2 if route == "difference" else 1e-4, atol=1e-6)


def by_hand(method, batch):
    """The K updates with the virtual step in autograd's graph; evaluation order as Algorithm 1 has it."""
    method, settings = copy.deepcopy(method), method.settings
    embedder, logits = method.embedder, method.assessor.logits
    inputs, labels = subset(method, batch)
    unseen, unseen_labels = batch.inputs[len(inputs) :], batch.labels[len(labels) :]
    parameters = dict(embedder.named_parameters())
    losses = method.scoring(embedder.embed(embedder.features(inputs)), labels, embedder.embed).losses
    frozen = None
    for _ in range(settings.updates):
        weights = logits.sigmoid() if frozen is None or settings.recompute else frozen
        used = weights / weights.mean() if settings.relative else weights
        objective = getattr(used * losses, settings.over)()
        gradients = torch.autograd.grad(objective, list(parameters.values()), create_graph=True)
        tried = {
            name: p - (0.5 if name.startswith("head.") else 0.1) * g
            for (name, p), g in zip(parameters.items(), gradients, strict=True)
        }
        validation = getattr(
            method.scoring(method.metric.embed(tried, unseen), unseen_labels, embedder.embed).losses, settings.over
        )()
        (slope,) = torch.autograd.grad(validation, used)
        now = logits.sigmoid() / logits.sigmoid().mean() if settings.relative else logits.sigmoid()
        (step,) = torch.autograd.grad(now @ slope, logits)
        frozen = weights.detach().requires_grad_()
        with torch.no_grad():
            logits -= settings.rate * step
    return logits.detach()


def test_a_tuple_that_pulls_with_the_validation_gradient_gains_weight(sampler, batch):
    settings = Assessing(rate=1e-3, optimiser="sgd", updates=1, relative=False)
    method = make(sampler, FreeWeights(TRAINING), settings)
    along = []
    inner = method._slopes
    method._slopes = lambda *given: along.append(inner(*given)) or along[-1]
    method.step(batch)
    moved = method.assessor.logits.detach()
    assert (along[0] != 0).any()
    assert torch.equal(moved.sign(), along[0].sign())


def test_with_one_update_both_readings_are_the_same(sampler, batch):
    found = []
    for recompute in (False, True):
        method = make(sampler, settings=Assessing(updates=1, recompute=recompute))
        for _ in range(3):
            method.step(batch)
        found.append(method.embedder.state_dict())
    for once, again in zip(found[0].values(), found[1].values(), strict=True):
        assert torch.equal(once, again)


def test_teaching_changes_nothing_but_the_assessor(sampler, batch):
    method = make(sampler, optimizer=torch.optim.AdamW)
    method.step(batch)
    training = method._pass(
        batch.inputs, batch.labels
    )  # the real pass moves batch norm's statistics, as in any training
    before = copy.deepcopy([method.embedder.state_dict(), method.optimizer.state_dict(), method.scoring.state_dict()])
    state, phi = method.assessor.hidden_state.clone(), copy.deepcopy(method.assessor.weight.weight)
    method._teach(batch.inputs, batch.labels, training)
    after = [method.embedder.state_dict(), method.optimizer.state_dict(), method.scoring.state_dict()]
    assert repr(before) == repr(after)
    for name, value in method.embedder.state_dict().items():
        assert torch.equal(value, before[0][name]), name
    assert torch.equal(method.assessor.hidden_state, state) and not torch.equal(method.assessor.weight.weight, phi)


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_the_state_advances_once_an_episode_whatever_k_is(sampler, batch, updates):
    method = make(sampler, settings=Assessing(updates=updates))
    advanced, inner = [], method.assessor.advance
    method.assessor.advance = lambda state: advanced.append(1) or inner(state)
    for _ in range(3):
        method.step(batch)
    assert len(advanced) == 3 and method.assessor.hidden_state.grad_fn is None


def test_statistics_move_as_often_as_without_an_assessor(sampler, batch):
    method = make(sampler, settings=Assessing(updates=3, recompute=True))
    method.step(batch)
    assert method.embedder.backbone.layers[1].num_batches_tracked == 1


def test_average_weighted_hardness_is_unweighted_for_weight_one(sampler, batch):
    scalars = make(sampler, ConstantAssessor(1.0)).step(batch)
    torch.testing.assert_close(scalars["hardness/weighted"], scalars["hardness/unweighted"])
    scalars = make(sampler, ConstantAssessor(0.25)).step(batch)
    torch.testing.assert_close(scalars["hardness/ratio"], torch.tensor(0.25))
    torch.testing.assert_close(scalars["hardness/preference"], torch.tensor(1.0))


@pytest.mark.parametrize(
    ("loss", "scoring"),
    [
        (ContrastiveLoss(2.0), TripletScoring),
        (ContrastiveLoss(2.0), PairScoring),
        (MarginLoss(classes=10), TripletScoring),
        (MarginLoss(), PairScoring),
    ],
)
def test_trains_other_losses_and_what_they_learn(sampler, batch, loss, scoring):
    method = make(sampler, loss=loss, scoring=scoring)
    before = copy.deepcopy(loss.state_dict())
    for _ in range(3):
        scalars = method.step(batch)
    assert all(value.isfinite() and value.ndim == 0 for value in scalars.values())
    assert all(not torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.parametrize("settings", [Assessing(), Assessing(unroll="head"), Assessing(route="difference")])
def test_goes_on_from_its_state_bit_for_bit(sampler, batch, settings):
    def scheduled():
        method = make(sampler, settings=settings, optimizer=torch.optim.AdamW)
        method.schedule = torch.optim.lr_scheduler.ExponentialLR(method.optimizer, 0.5)
        return method

    method, again = scheduled(), scheduled()
    for _ in range(2):
        method.step(batch)
    again.load_state_dict(copy.deepcopy(method.state_dict()))
    assert method.step(batch) == again.step(batch)
    for a, b in zip(method.embedder.parameters(), again.embedder.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(method.assessor.hidden_state, again.assessor.hidden_state)


def test_an_inert_assessor_says_so_once_trained(sampler, batch):
    inert = make(sampler, settings=Assessing(rate=1e-9))
    assert inert.notes == ()
    nn.init.normal_(inert.assessor.weight.weight, std=1e-6)
    inert.step(batch)
    assert any("assessor inert" in note for note in inert.notes)
    lively = make(sampler, settings=Assessing(rate=0.05))
    for _ in range(5):
        lively.step(batch)
    assert lively.notes == () and lively._widest > 1e-3


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


@pytest.mark.parametrize("operator", [OldStyle, WithoutJVP])
def test_falls_back_to_double_backward_and_says_so(sampler, batch, operator):
    method, reference = make(sampler), make(sampler, settings=Assessing(relative=False, route="double_backward"))
    inner = method.embedder.backbone.forward
    method.embedder.backbone.forward = lambda x: operator.apply(inner(x))
    assert method.step(batch)["loss"] == reference.step(batch)["loss"]
    assert "an operator of the network has no forward mode: meta-gradients came by double backward." in method.notes
    assert method.route == "double_backward"
    for a, b in zip(method.assessor.parameters(), reference.assessor.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_shows_its_heaviest_and_lightest_tuples(sampler, batch):
    method = make(sampler, settings=Assessing(rate=0.05))
    assert method.exhibits() == ()
    for _ in range(3):
        method.step(batch)
    heaviest, lightest = method.exhibits()
    assert heaviest.title == "Heaviest tuples"
    assert [member.role for member in heaviest.tuples[0].members] == ["anchor", "positive", "negative"]
    weights = [float(shown.caption.split()[1]) for kind in (heaviest, lightest) for shown in kind.tuples]
    assert weights[0] == max(weights) and weights[len(weights) // 2] == min(weights)
    labels = sampler.labels[[member.record for member in heaviest.tuples[0].members]]
    assert labels[0] == labels[1] != labels[2]


def test_every_group_of_its_scalars_is_explained(sampler, batch):
    method = make(sampler)
    groups = {name.split("/")[0] for name in method.step(batch) if "/" in name}
    assert groups == set(method.readings)


def test_a_collapsed_loss_is_the_margin_times_the_mean_weight(sampler, batch):
    method = make(sampler, ConstantAssessor(0.25))
    method.step(batch)
    assert method.collapsed_loss(batch) == pytest.approx(0.25, abs=1e-3)


def test_variants_share_the_embedder_and_the_batches(sampler):
    found = {}
    for variant in ("ala", "plain", "constant", "random", "mlp"):
        torch.manual_seed(3)
        embedder = Embedder(Identity(WIDTH), DIM)
        found[variant] = build_variant(
            variant,
            embedder,
            TripletScoring(TripletLoss()),
            sampler,
            Optimisation(),
            Assessing(),
            epochs=1,
            mean=0.5,
            spread=0.1,
            seed=3,
        )
    assert isinstance(found["plain"], Plain) and isinstance(found["plain"].loss, EpisodeLoss)
    for method in found.values():
        assert torch.equal(method.embedder.head.weight, found["ala"].embedder.head.weight)
        assert method.batches(1) == found["ala"].batches(1)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="updates and rate are 0 or more, but -1 and"):
        Assessing(updates=-1)


def test_a_virtual_step_follows_the_schedule(sampler, batch):
    method = make(sampler)
    first = method.step(batch)["virtual_step/relative_length"]
    twin = make(sampler)
    for group in twin.optimizer.param_groups:
        group["lr"] /= 2
    torch.testing.assert_close(twin.step(batch)["virtual_step/relative_length"], first / 2)


def test_a_network_without_random_numbers_has_none_to_repeat(sampler, batch):
    method = make(sampler)
    method.step(batch)
    assert method.metric._random is None
    method.embedder.backbone.layers.append(nn.Dropout(0.5))
    method.step(batch)
    assert method.metric._random is not None


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"recompute": True}, {"route": "difference"}, {"unroll": "head"}])
def test_replayed_steps_give_what_steps_give(sampler, batch, settings):
    """While learning rates fall: a recording reads them anew."""
    found, device = [], torch.device("cuda")
    for recorded in (False, True):
        method = make(sampler, settings=Assessing(**settings), optimizer=torch.optim.AdamW)
        method.schedule = torch.optim.lr_scheduler.LambdaLR(method.optimizer, lambda step: 1e-2 * 0.8**step)
        method.to(device)
        method.embedder.accelerate(None, recorded=recorded)
        method.embedder.train()
        found.append([{name: float(v) for name, v in method.step(batch.to(device)).items()} for _ in range(8)])
        state = method.assessor.hidden_state.clone()
        method.step(batch.to(device))
        assert not torch.equal(state, method.assessor.hidden_state)
    assert any(recording is not None for recording in method._recorder._recordings.values())
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=5e-3, abs=1e-5)


@pytest.mark.gpu
def test_random_numbers_of_the_network_keep_steps_from_being_recorded(sampler, batch):
    method, device = make(sampler), torch.device("cuda")
    method.embedder.backbone.layers.append(nn.Dropout(0.5))
    method.to(device)
    method.embedder.accelerate(None, recorded=True)
    method.embedder.train()

    def all_steps():
        for _ in range(6):
            method.step(batch.to(device))

    with pytest.warns(RuntimeWarning, match="draws random numbers"):
        all_steps()
    assert set(method._recorder._recordings.values()) == {None}
