"""HDML + ALA: both kinds of tuples are weighed, the generator stands still where only a step is tried."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from vicinal.assessment import ALAConfig, ConstantAssessor, LSTMAssessor
from vicinal.assessment.meta_gradient import embedding_tangents, gradient, slopes, slopes_by_double_backward
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import TripletLoss
from vicinal.methods.hdml_ala import HDMLALATraining
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.sampling import EpisodeSampler
from vicinal.synthesis import HDMLConfig

LABELS = np.arange(10).repeat(4)


def make(assessor=None, assessing=None, **settings):
    torch.manual_seed(0)
    sampler = EpisodeSampler(LABELS, training_classes=5, validation_classes=3, seed=0)
    return HDMLALATraining.from_config(
        Embedder(Identity(6), 4),
        TripletLoss(margin=1.0, blocks=True),
        assessor or LSTMAssessor(12, hidden=8),
        sampler,
        OptimizerConfig(learning_rate=1e-2),
        assessing or ALAConfig(),
        HDMLConfig(window=1, generator_norm=True, **settings),
        labels=LABELS,
        steps=5 * len(sampler),
    )


@pytest.fixture
def batch(rng):
    rows = torch.tensor(make().batches(0)[0])
    return Batch(torch.randn(len(rows), 6, generator=rng), torch.as_tensor(LABELS)[rows], rows, largest_class=2)


def test_real_and_regenerated_tuples_are_weighed_and_validation_is_real(batch):
    method = make(real_share=0.25)
    method.step(batch)
    method.scoring.pull, method.scoring.share = torch.tensor(0.5), torch.tensor(0.25)
    training = method.ala.teaching.training_pass(batch.inputs, batch.labels)
    scored = training.scored
    assert scored.losses.shape == (10,) and scored.members.shape == (10, 3, 4)
    real = method.scoring.real(training.embeddings.detach(), training.labels, method.embedder.embed)
    torch.testing.assert_close(scored.losses[:5].detach(), 2 * 0.25 * real.losses)
    assert method.scoring.real is method.scoring.inner


def test_weight_one_is_hdmls_own_objective(batch):
    method = make(ConstantAssessor(1.0), real_share=0.25)
    loss = method.step(batch)["loss"]
    method = make(ConstantAssessor(1.0), real_share=0.25)
    method.scoring.pull, method.scoring.share = torch.zeros(()), torch.tensor(0.25)
    losses = method.ala.teaching.training_pass(batch.inputs, batch.labels).scored.losses
    real, synthetic = losses[:5].mean() / (2 * 0.25), losses[5:].mean() / (2 * 0.75)
    torch.testing.assert_close(loss, (0.25 * real + 0.75 * synthetic).detach())


def test_the_derivative_runs_over_both_vectors_of_losses(batch):
    method = make(real_share=0.25)
    method.step(batch)
    method.scoring.pull = torch.tensor(0.5)
    training, ala = method.ala.teaching.training_pass(batch.inputs, batch.labels), method.ala
    steps = ala.metric.scaled(gradient(training.scored.losses.mean(), ala.metric.leaves))
    _, direction = ala.teaching.validate(batch.inputs, batch.labels, steps)
    tangents = embedding_tangents(ala.metric, training.inputs, direction)
    before = copy.deepcopy(method.hdml.generator.state_dict())
    forward = slopes(ala.metric, method.scoring, direction, training.embeddings, tangents, training.labels)
    backward = slopes_by_double_backward(training.scored.losses, ala.metric.leaves, direction)
    torch.testing.assert_close(forward, backward, rtol=1e-3, atol=1e-8)
    assert forward[5:].abs().max() > 0
    for name, value in method.hdml.generator.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_bilevel_step_leaves_the_generator_and_the_generators_step_leaves_the_metric(batch):
    method = make(real_share=0.5)
    generator = copy.deepcopy(list(method.hdml.generator.parameters()))
    method.scoring.pull, method.scoring.share = torch.tensor(0.5), torch.tensor(0.5)
    method.ala.step(batch)
    assert all(torch.equal(a, b) for a, b in zip(method.hdml.generator.parameters(), generator, strict=True))
    metric = copy.deepcopy(method.embedder.state_dict())
    method._generate()
    assert not all(torch.equal(a, b) for a, b in zip(method.hdml.generator.parameters(), generator, strict=True))
    assert all(torch.equal(value, metric[name]) for name, value in method.embedder.state_dict().items())


def test_goes_on_from_its_state_bit_for_bit(batch):
    method = make()
    for _ in range(3):
        method.step(batch)
    again = make()
    again.load_state_dict(copy.deepcopy(method.state_dict()))
    assert method.step(batch) == again.step(batch)
    for a, b in zip(method.embedder.parameters(), again.embedder.parameters(), strict=True):
        assert torch.equal(a, b)


def test_every_group_of_its_scalars_is_explained(batch):
    method = make()
    groups = {name.split("/")[0] for name in method.step(batch)}
    assert groups - {"loss", "active", "spread"} == set(method.readings)


def test_shows_real_tuples_by_their_weights(batch):
    method = make()
    method.step(batch)
    heaviest, lightest = method.exhibits()
    for shown in (*heaviest.tuples, *lightest.tuples):
        anchor, positive, negative = LABELS[[member.record for member in shown.members]]
        assert anchor == positive != negative


def test_a_loss_without_blocks_is_refused():
    with pytest.raises(ConfigError, match="a loss with blocks=False"):
        HDMLALATraining.from_config(
            Embedder(Identity(6), 4),
            TripletLoss(),
            LSTMAssessor(12),
            EpisodeSampler(LABELS, training_classes=5, validation_classes=3, seed=0),
            OptimizerConfig(),
            ALAConfig(),
            HDMLConfig(),
            labels=LABELS,
            steps=len(EpisodeSampler(LABELS, training_classes=5, validation_classes=3, seed=0)),
        )


def test_real_members_are_refused():
    with pytest.raises(ConfigError, match="Set members=regenerated"):
        make(members="real")


def three_steps(batch, part=slice(None)):
    """Of one process, or of one of several that holds ``part`` of each batch."""
    method = make(assessing=ALAConfig(rate=30.0, optimizer="sgd"), real_share=0.5)
    mine = Batch(batch.inputs[part], batch.labels[part], batch.indices[part], largest_class=2)
    scalars = [method.step(mine) for _ in range(3)][-1]
    parts = {"metric": method.embedder, "generator": method.hdml.generator, "assessor": method.ala.assessor}
    return scalars | {
        f"{name} {key}": value for name, part in parts.items() for key, value in part.state_dict().items()
    }


def one_of_two(number, folder, batch):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    try:
        half = len(batch.inputs) // 2
        torch.save(three_steps(batch, slice(half * number, half * number + half)), f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(batch, tmp_path):
    mp.start_processes(one_of_two, args=(str(tmp_path), batch), nprocs=2, start_method="spawn")
    for number in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{number}.pt"), three_steps(batch), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_replayed_steps_give_what_steps_give(batch):
    found, device = [], torch.device("cuda")
    for recorded in (False, True):
        method = make()
        method.to(device)
        method.embedder.accelerate(None, recorded=recorded)
        method.embedder.train()
        found.append([{name: float(v) for name, v in method.step(batch.to(device)).items()} for _ in range(8)])
    assert any(recording is not None for recording in method.ala._recorder._recordings.values())
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=5e-3, abs=1e-5)
