"""DML-ALA: the whole step, against the equations and against its plain baseline."""

import copy

import pytest
import torch
from tests.methods.ala.small import DIM, RATES, TRAINING, make
from torch import nn
from torch.testing import assert_close

from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import LSTMAssessor
from vicinal.methods.optimizer import SGD, Adam
from vicinal.training.cuda_graph import CUDAGraphStep

CONSTANT = {"assessor": "constant", "relative": False}


def subset(method, batch):
    rows = method.sampler.training_rows
    return batch.inputs[:rows], batch.labels[:rows]


@pytest.mark.parametrize(
    ("settings", "sums", "as_they_are"),
    [
        (ALA(), False, False),
        (ALA("paper"), True, True),
        (ALA(relative=False), False, True),
        (ALA("paper", relative=True), True, False),
    ],
    ids=str,
)
def test_the_paper_sums_weights_and_embeddings_as_they_are_and_descends(
    sampler, settings, sums, as_they_are
):
    """Eqs. (10), (12) and (13), and Section 3.2."""
    assessor = settings.build_assessor(12)
    assert assessor.scaled == (settings.form == "ours") and assessor.centered != as_they_are
    weights = torch.tensor([0.2, 0.6])
    assert torch.equal(settings.factors(weights), weights) == as_they_are
    assert settings.add_up(weights) == (weights.sum() if sums else weights.mean())
    optimizer = make(sampler, settings).optimizers["assessor"]
    assert isinstance(optimizer, SGD if settings.form == "paper" else Adam)


def test_a_constant_assessor_takes_the_baseline_step_times_its_weight(sampler, batch):
    method = make(sampler, ALA(**CONSTANT, weight=0.3))
    baseline = copy.deepcopy(method.embedder)
    inputs, labels = subset(method, batch)
    loss = method.scoring(baseline.embed(baseline.features(inputs)), labels).losses.mean()
    loss.backward()
    assert_close(method(batch).scalars["loss"], 0.3 * loss.detach())
    for (name, after), before in zip(
        method.embedder.named_parameters(), baseline.parameters(), strict=True
    ):
        rate = RATES[name.startswith("head.")]
        assert_close(after.detach(), (before - rate * 0.3 * before.grad).detach())


@pytest.mark.parametrize("updates", [0, 3])
def test_the_step_is_taken_from_the_original_parameters_with_the_taught_weights(
    sampler, batch, updates
):
    """Eq. (13), one tuple after the other: A(T; φ*) multiplies a gradient at θ, and nothing flows
    through it."""
    assessor = LSTMAssessor(3 * DIM, hidden=8)
    nn.init.normal_(assessor.weight.weight)
    method = make(sampler, ALA(relative=False, updates=updates, rate=0.05), assessor)
    before = copy.deepcopy(method.embedder)
    untaught = copy.deepcopy(assessor)
    method(batch)
    taught = copy.deepcopy(method.weigh)
    # Φ* from the state before the episode.
    taught.advance((untaught.hidden_state, untaught.cell_state))
    inputs, labels = subset(method, batch)
    scored = method.scoring(before.embed(before.features(inputs)), labels)
    weights = taught(scored.members).weights.detach()
    assert torch.equal(weights, untaught(scored.members).weights) == (updates == 0)
    total = [torch.zeros_like(p) for p in before.parameters()]
    for weight, loss in zip(weights, scored.losses, strict=True):
        parts = torch.autograd.grad(loss, list(before.parameters()), retain_graph=True)
        total = [t + weight * part / TRAINING for t, part in zip(total, parts, strict=True)]
    for (name, after), was, step in zip(
        method.embedder.named_parameters(), before.parameters(), total, strict=True
    ):
        assert_close(after, was - RATES[name.startswith("head.")] * step)


@pytest.mark.parametrize("updates", [0, 3])
def test_the_state_advances_once_an_episode_whatever_k_is(sampler, batch, updates):
    method = make(sampler, ALA(updates=updates))
    advanced = []
    inner = method.weigh.advance
    method.weigh.advance = lambda state: advanced.append(1) or inner(state)
    for _ in range(3):
        method(batch)
    assert len(advanced) == 3 and method.weigh.hidden_state.grad_fn is None


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"form": "paper"}])
def test_replayed_steps_give_what_steps_give(sampler, batch, settings):
    """While learning rates fall: a graph reads them anew."""
    found = []
    on_gpu = batch.to(torch.device("cuda"))
    for captured in (False, True):
        method = make(sampler, ALA(**settings), name="adamw", schedule="cosine")
        method.place(torch.device("cuda"))
        method.embedder.train()
        take = CUDAGraphStep(method) if captured else method
        found.append(
            [{name: float(v) for name, v in take(on_gpu).scalars.items()} for _ in range(8)]
        )
        state = method.weigh.hidden_state.clone()
        take(on_gpu)
        assert not torch.equal(state, method.weigh.hidden_state)
    assert any(graph is not None for graph in take._graphs.values())
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=5e-3, abs=1e-5)
