"""HDML + ALA: both kinds of tuples are weighed, the generator stands still where only a step is
tried."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.apart import in_two
from tests.methods.build import build

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import MultiSimilarityLoss, TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.meta_gradient import gradient, slopes, slopes_by_double_backward
from vicinal.methods.hdml import HDML
from vicinal.methods.hdml_ala import HDMLALA
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import EpisodeSampler
from vicinal.training.cuda_graph import CUDAGraphStep

LABELS = np.arange(10).repeat(4)


CONSTANT = ALA(assessor="constant", weight=1.0)


def make(ala=None, loss=None, share=None, **settings):
    torch.manual_seed(0)
    sampler = EpisodeSampler(LABELS, training_classes=5, validation_classes=3, seed=0)
    method = build(
        HDMLALA(Normed(window=1, **settings), ala or ALA()),
        Embedder(Identity(6), 4),
        loss or TripletLoss(margin=1.0),
        sampler,
        OptimizerConfig(learning_rate=1e-2),
        labels=LABELS,
        steps=5 * len(sampler),
    )
    if share is not None:
        method.hdml.real_weight = lambda: torch.tensor(share)
    return method


def set_shares(method, lambda_, share):
    """Set λ and w, as a step does."""
    method.ala.scoring.lambda_.fill_(lambda_)
    method.ala.scoring.share.fill_(share)


class Normed(HDML):
    """HDML whose generator has a batch norm."""

    def chosen(self, **kind):
        return replace(super().chosen(**kind), generator_norm=True)


@pytest.fixture
def batch(rng):
    rows = torch.tensor(make().batches(0)[0])
    return Batch(
        torch.randn(len(rows), 6, generator=rng),
        torch.as_tensor(LABELS)[rows],
        rows,
        largest_class=2,
    )


def test_real_and_regenerated_tuples_are_weighed_and_validation_is_real(batch):
    method = make(share=0.25)
    method(batch)
    set_shares(method, 0.5, 0.25)
    training = method.ala.training_pass(batch)
    scoring = method.ala.scoring
    scored = training.scored
    assert scored.losses.shape == (10,) and scored.members.shape == (10, 3, 4)
    real = scoring.real(training.embeddings.detach(), training.labels, method.embedder.embed)
    torch.testing.assert_close(scored.losses[:5].detach(), 2 * 0.25 * real.losses)
    assert scoring.real is scoring.inner


def test_weight_one_is_hdmls_own_objective(batch):
    loss = make(CONSTANT, share=0.25)(batch).scalars["loss"]
    method = make(CONSTANT, share=0.25)
    set_shares(method, 1.0, 0.25)
    losses = method.ala.training_pass(batch).scored.losses
    real = losses[:5].mean() / (2 * 0.25)
    synthetic = losses[5:].mean() / (2 * 0.75)
    torch.testing.assert_close(loss, (0.25 * real + 0.75 * synthetic).detach())


def test_the_derivative_runs_over_both_vectors_of_losses(batch):
    method = make(share=0.25)
    method(batch)
    set_shares(method, 0.5, 0.25)
    training = method.ala.training_pass(batch)
    ala = method.ala
    steps = ala.metric.scaled(gradient(training.scored.losses.mean(), ala.metric.leaves))
    _, direction = ala.validate(batch, steps)
    tangents = ala.metric.tangents(direction, training.inputs)
    before = copy.deepcopy(method.hdml.generator.state_dict())
    forward = slopes(
        ala.metric, ala.scoring, direction, training.embeddings, tangents, training.labels
    )
    backward = slopes_by_double_backward(training.scored.losses, ala.metric.leaves, direction)
    torch.testing.assert_close(forward, backward, rtol=1e-3, atol=1e-8)
    assert forward[5:].abs().max() > 0
    for name, value in method.hdml.generator.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_bilevel_step_leaves_the_generator_and_the_generators_step_leaves_the_metric(batch):
    method = make(share=0.5)
    generator = copy.deepcopy(list(method.hdml.generator.parameters()))
    set_shares(method, 0.5, 0.5)
    result = method.ala.step(batch)
    assert all(
        torch.equal(a, b)
        for a, b in zip(method.hdml.generator.parameters(), generator, strict=True)
    )
    metric = copy.deepcopy(method.embedder.state_dict())
    method._generate(result, method.ala.scoring)
    assert not all(
        torch.equal(a, b)
        for a, b in zip(method.hdml.generator.parameters(), generator, strict=True)
    )
    assert all(
        torch.equal(value, metric[name]) for name, value in method.embedder.state_dict().items()
    )


def test_shows_real_tuples_by_their_weights(batch):
    method = make()
    method(batch)
    heaviest, lightest = method.figures(batch)
    for shown in (*heaviest.tuples, *lightest.tuples):
        anchor, positive, negative = LABELS[[member.record for member in shown.members]]
        assert anchor == positive != negative


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": MultiSimilarityLoss()}, "Set loss=triplet and method.ala.units=triplets"),
        ({"ala": ALA(units="anchors")}, "Set loss=triplet and method.ala.units=triplets"),
    ],
    ids=str,
)
def test_settings_without_regenerated_triplets_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(**settings)


def three_steps(batch, part=slice(None)):
    """Of one process, or of one of several that holds ``part`` of each batch."""
    method = make(ALA("paper", rate=30.0, over="mean", relative=True), share=0.5)
    mine = Batch(batch.inputs[part], batch.labels[part], batch.indices[part], largest_class=2)
    scalars = [method(mine).scalars for _ in range(3)][-1]
    parts = {
        "metric": method.embedder,
        "generator": method.hdml.generator,
        "assessor": method.ala.weigh,
    }
    return dict(scalars) | {
        f"{name} {key}": value
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(batch, tmp_path):
    for found in in_two(half, tmp_path, batch):
        torch.testing.assert_close(found, three_steps(batch), rtol=1e-3, atol=1e-3)


def half(number, batch):
    rows = len(batch.inputs) // 2
    return three_steps(batch, slice(rows * number, rows * number + rows))


@pytest.mark.gpu
def test_replayed_steps_give_what_steps_give(batch):
    found = []
    device = torch.device("cuda")
    for captured in (False, True):
        method = make()
        method.place(device)
        method.embedder.train()
        step = CUDAGraphStep(method) if captured else method
        found.append(
            [
                {name: float(v) for name, v in step(batch.to(device)).scalars.items()}
                for _ in range(8)
            ]
        )
    assert any(graph is not None for graph in step._graphs.values())
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=5e-3, abs=1e-5)
