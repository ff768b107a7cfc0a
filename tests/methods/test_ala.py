"""DML-ALA: the whole step, against the equations and against its plain twin; teaching is tested with the assessor."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from vicinal.assessment import (
    ALAConfig,
    AnchorScoring,
    ConstantAssessor,
    LSTMAssessor,
    PairScoring,
    TripletScoring,
)

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    TripletLoss,
)
from vicinal.methods.ala import ALATraining
from vicinal.models import Embedder, Identity
from vicinal.reports.series import charts, read_progress
from vicinal.sampling import EpisodeSampler

TRAINING, VALIDATION, WIDTH, DIM = 5, 3, 6, 4
PLAIN_DESCENT = ALAConfig(relative=False)
LABELS = np.arange(10).repeat(4)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = WIDTH
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())

    def forward(self, inputs):
        return self.layers(inputs)


@pytest.fixture
def sampler():
    return EpisodeSampler(LABELS, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)


@pytest.fixture
def batch(sampler, rng):
    rows = torch.tensor(sampler.epoch(0)[0])
    centres = torch.randn(10, WIDTH, generator=rng)
    labels = torch.as_tensor(sampler.labels)[rows]
    return Batch(centres[labels] + torch.randn(len(rows), WIDTH, generator=rng), labels, rows, largest_class=2)


def make(
    sampler,
    assessor=None,
    settings=PLAIN_DESCENT,
    *,
    loss=None,
    optimizer=None,
    scoring=TripletScoring,
    backbone=Backbone,
):
    torch.manual_seed(0)
    embedder = Embedder(backbone(), DIM)
    scoring = scoring(loss or TripletLoss(margin=1.0))
    parts = embedder.backbone.parameters(), embedder.head.parameters(), scoring.parameters()
    groups = [{"params": list(part), "lr": rate} for part, rate in zip(parts, (0.1, 0.5, 0.1), strict=True)]
    optimizer = (optimizer or torch.optim.SGD)([group for group in groups if group["params"]])
    return ALATraining(
        embedder, scoring, assessor or LSTMAssessor(scoring.seen * DIM, hidden=8), sampler, optimizer, settings
    )


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


@pytest.mark.parametrize("updates", [0, 3])
def test_the_step_is_taken_from_the_original_parameters_with_the_taught_weights(sampler, batch, updates):
    """Eq. (13), one tuple after the other: A(T; φ*) multiplies a gradient at θ, and nothing flows through it."""
    assessor = LSTMAssessor(3 * DIM, hidden=8)
    nn.init.normal_(assessor.weight.weight)
    method = make(sampler, assessor, ALAConfig(relative=False, updates=updates, rate=0.05))
    twin, untaught = copy.deepcopy(method.embedder), copy.deepcopy(assessor)
    method.step(batch)
    taught = copy.deepcopy(method.assessor)
    taught.advance((untaught.hidden_state, untaught.cell_state))  # φ* from the state before the episode
    inputs, labels = subset(method, batch)
    scored = method.scoring(twin.embed(twin.features(inputs)), labels, twin.embed)
    weights = taught(scored.members).weights.detach()
    assert torch.equal(weights, untaught(scored.members).weights) == (updates == 0)
    total = [torch.zeros_like(p) for p in twin.parameters()]
    for weight, loss in zip(weights, scored.losses, strict=True):
        parts = torch.autograd.grad(loss, list(twin.parameters()), retain_graph=True)
        total = [t + weight * part / TRAINING for t, part in zip(total, parts, strict=True)]
    for (name, after), before, step in zip(method.embedder.named_parameters(), twin.parameters(), total, strict=True):
        torch.testing.assert_close(after, before - (0.5 if name.startswith("head.") else 0.1) * step)


def test_with_one_update_both_readings_are_the_same(sampler, batch):
    found = []
    for recompute in (False, True):
        method = make(sampler, settings=ALAConfig(updates=1, recompute=recompute))
        for _ in range(3):
            method.step(batch)
        found.append(method.embedder.state_dict())
    for once, again in zip(found[0].values(), found[1].values(), strict=True):
        assert torch.equal(once, again)


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_the_state_advances_once_an_episode_whatever_k_is(sampler, batch, updates):
    method = make(sampler, settings=ALAConfig(updates=updates))
    advanced, inner = [], method.assessor.advance
    method.assessor.advance = lambda state: advanced.append(1) or inner(state)
    for _ in range(3):
        method.step(batch)
    assert len(advanced) == 3 and method.assessor.hidden_state.grad_fn is None


def test_statistics_move_as_often_as_without_an_assessor(sampler, batch):
    method = make(sampler, settings=ALAConfig(updates=3, recompute=True))
    method.step(batch)
    assert method.embedder.backbone.layers[1].num_batches_tracked == 1


@pytest.mark.parametrize(
    ("loss", "scoring"),
    [
        (ContrastiveLoss(2.0), TripletScoring),
        (ContrastiveLoss(2.0), PairScoring),
        (MarginLoss(class_boundaries=10), TripletScoring),
        (MarginLoss(), PairScoring),
        (MultiSimilarityLoss(), AnchorScoring),
        (LiftedStructureLoss(), AnchorScoring),
        (AdaptiveNeighborhoodLoss(), AnchorScoring),
    ],
)
def test_trains_other_losses_and_what_they_learn(sampler, batch, loss, scoring):
    method = make(sampler, loss=loss, scoring=scoring)
    before = copy.deepcopy(loss.state_dict())
    for _ in range(3):
        scalars = method.step(batch)
    assert all(value.isfinite() and value.ndim == 0 for value in scalars.values())
    assert all(not torch.equal(value, before[name]) for name, value in loss.state_dict().items())


@pytest.mark.parametrize("settings", [ALAConfig(), ALAConfig(unroll="head"), ALAConfig(route="difference")])
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


@pytest.mark.parametrize("settings", [ALAConfig(rate=1e-9), ALAConfig(rate=0.0), ALAConfig(updates=0)])
def test_an_inert_assessor_says_so_once_trained(sampler, batch, settings):
    inert = make(sampler, settings=settings)
    assert inert.notes == ()
    inert.step(batch)
    inert.step(batch)
    assert [note.split(":")[0] for note in inert.notes] == ["assessor inert"]


def test_an_assessor_that_tells_tuples_apart_has_nothing_to_say(sampler, batch):
    lively = make(sampler, settings=ALAConfig(rate=0.05))
    for _ in range(5):
        scalars = lively.step(batch)
    assert scalars["weight_deviation"] > 1e-3 and lively.notes == ()
    constant = make(sampler, ConstantAssessor(0.5))
    constant.step(batch)
    assert constant.notes == (), "a control is meant to weigh all alike"


def test_a_network_without_forward_mode_is_noted(sampler, batch):
    method = make(sampler, settings=ALAConfig(rate=0.05))
    inner = method.embedder.backbone.forward
    method.embedder.backbone.forward = lambda x: WithoutForwardMode.apply(inner(x))
    for _ in range(5):
        method.step(batch)
    assert [note.split(":")[0] for note in method.notes] == [
        "an operator of the network or the loss has no forward mode"
    ]


class WithoutForwardMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_too_few_classes_for_an_episode_are_noted(batch):
    scaled = EpisodeSampler(LABELS, seed=0)
    assert make(scaled).notes == (scaled.note,) and "an episode of 60 classes was asked for" in scaled.note


def test_shows_its_heaviest_and_lightest_tuples(sampler, batch):
    method = make(sampler, settings=ALAConfig(rate=0.05))
    assert method.exhibits() == ()
    for _ in range(3):
        method.step(batch)
    heaviest, lightest = method.exhibits()
    assert heaviest.title == "Heaviest tuples"
    assert [member.role for member in heaviest.tuples[0].members] == ["anchor", "positive", "negative"]
    weights = [float(shown.caption.split()[2]) for kind in (heaviest, lightest) for shown in kind.tuples]
    assert weights[0] == max(weights) and weights[len(weights) // 2] == min(weights)
    labels = sampler.labels[[member.record for member in heaviest.tuples[0].members]]
    assert labels[0] == labels[1] != labels[2]


def test_every_group_of_its_scalars_is_explained(sampler, batch):
    method = make(sampler)
    groups = {name.split("/")[0] for name in method.step(batch)}
    assert groups - {"loss", "active", "spread"} == set(method.readings)


def test_mean_and_deviation_of_the_weights_have_charts_of_their_own(sampler, batch):
    """On one axis with a mean of 0.5 nobody would see whether a deviation of 0.01 rises."""
    line = {name: float(value) for name, value in make(sampler).step(batch).items()}
    found = {chart.key: list(chart.lines) for chart in charts(read_progress([{"kind": "step", "step": 0, **line}]))}
    assert found["scalar-weight_mean"] == ["weight_mean"] and found["scalar-weight_deviation"] == ["weight_deviation"]
    assert found["scalar-hardness"] == ["weighted", "unweighted", "ratio", "preference"]


def test_a_collapsed_loss_is_the_margin_times_the_mean_weight(sampler, batch):
    method = make(sampler, ConstantAssessor(0.25))
    method.step(batch)
    assert method.collapsed_loss(batch) == pytest.approx(0.25, abs=1e-3)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="updates and rate are 0 or more, but -1 and"):
        ALAConfig(updates=-1)


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


class Flat(Identity):
    """A backbone without a batch norm, whose statistics would be each process's own."""

    def __init__(self):
        super().__init__(WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs):
        return self.layer(inputs).tanh()


# Plain descent on φ: Adam would make a full step of a gradient that is 0 but for rounding, each process's own.
TOGETHER = [
    ALAConfig(rate=30.0, optimizer="sgd", **settings)
    for settings in (
        {},
        {"recompute": True, "over": "sum", "relative": False, "route": "double_backward"},
        {"route": "difference"},
        {"unroll": "head"},
    )
]


def three_steps(settings, batch, part=slice(None)):
    """Of one process, or of one of several that holds ``part`` of each batch."""
    sampler = EpisodeSampler(LABELS, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)
    torch.manual_seed(1)
    assessor = LSTMAssessor(3 * DIM, hidden=8)
    nn.init.normal_(assessor.weight.weight)
    method = make(sampler, assessor, settings, backbone=Flat)
    start = assessor.weight.weight.detach().clone()
    mine = Batch(batch.inputs[part], batch.labels[part], batch.indices[part], largest_class=2)
    scalars = [method.step(mine) for _ in range(3)][-1]
    taught = {f"assessor.{name}": value for name, value in assessor.state_dict().items()}
    return {
        **scalars,
        **method.embedder.state_dict(),
        **taught,
        "moved": (assessor.weight.weight.detach() - start).norm(),
    }


def one_of_two(number, folder, batch):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    try:
        half = len(batch.inputs) // 2
        part = slice(half * number, half * number + half)
        torch.save([three_steps(settings, batch, part) for settings in TOGETHER], f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(batch, tmp_path):
    """Each holds half an episode: the first training rows alone, the second the other ones and all of validation."""
    mp.start_processes(one_of_two, args=(str(tmp_path), batch), nprocs=2, start_method="spawn")
    for number in range(2):
        for settings, found in zip(TOGETHER, torch.load(tmp_path / f"{number}.pt"), strict=True):
            alone = three_steps(settings, batch)
            assert alone["moved"] > 0.1
            tolerance = 1e-2 if settings.route == "difference" else 1e-4
            torch.testing.assert_close(found, alone, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"recompute": True}, {"route": "difference"}, {"unroll": "head"}])
def test_replayed_steps_give_what_steps_give(sampler, batch, settings):
    """While learning rates fall: a recording reads them anew."""
    found, device = [], torch.device("cuda")
    for recorded in (False, True):
        method = make(sampler, settings=ALAConfig(**settings), optimizer=torch.optim.AdamW)
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
def test_random_numbers_of_the_network_keep_steps_from_being_captured(sampler, batch):
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
