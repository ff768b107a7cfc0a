"""Captured steps: the same numbers as steps that are computed, whatever comes between them."""

import copy
import gc
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from tests.apart import alone
from tests.methods.build import build
from torch import nn

from vicinal.data.records import Batch
from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    ClusteringLoss,
    HardExemplarLoss,
    HierarchicalTripletLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    NPairLoss,
)
from vicinal.methods import HDML, HER, HTL, CrossBatchMemory, LoOp, Plain, StepResult
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, SmallConvNet, TwoStreamEmbedder
from vicinal.training.cuda_graph import CUDAGraphStep

LABELS = torch.arange(8).repeat_interleave(4)
METHODS = {
    "plain": (Plain(), MultiSimilarityLoss),
    "danml": (Plain(), AdaptiveNeighborhoodLoss),
    "softmax": (Plain(), lambda: NormalizedSoftmaxLoss(8, 8, known=tuple(range(8)))),
    "loop": (LoOp(wait=0), MultiSimilarityLoss),
    "loop, waiting": (LoOp(wait=6), MultiSimilarityLoss),
    "hdml": (HDML(window=4), NPairLoss),
    "her": (HER(), HardExemplarLoss),
}


class Sampler:
    note = None

    def __len__(self):
        return 12


class Counting(nn.Module):
    """A loss that changes its mind in Python."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, embeddings, labels):
        self.calls += 1
        return embeddings.square().mean() * self.calls


@dataclass(eq=False)
class Waiting(Plain):
    """A step that reads a value of the device."""

    def step(self, batch):
        embeddings, labels = self.embed(batch)
        loss = embeddings.square().mean()
        self.differentiate(loss * loss.item())
        self.optimize()
        return StepResult({"loss": loss.detach()}, embeddings.detach(), labels)


def made(method, loss):
    torch.manual_seed(0)
    embedder = Embedder(SmallConvNet(1, (8, 16)), 8)
    if isinstance(method, HER):
        embedder = TwoStreamEmbedder(embedder, copy.deepcopy(embedder))
    sampler = Sampler()
    optimizer = OptimizerConfig(learning_rate=1e-2)
    return build(method, embedder, loss, sampler, optimizer, labels=LABELS.numpy(), steps=60)


def named(kind):
    method, loss = METHODS[kind]
    return made(method, loss())


def batches(device, count=12):
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        rows = 16 if number % 5 else 12  # every fifth has another shape
        labels = LABELS[:rows]
        inputs = torch.randn(rows, 1, 12, 12, generator=generator) + labels.view(-1, 1, 1, 1) / 4
        yield Batch(inputs.to(device), labels.to(device), torch.arange(rows), largest_class=4)


def placed(method):
    """Put a method on the GPU, to train."""
    method.place(torch.device("cuda"))
    method.embedder.train()
    return method


def trained(method, *, captured):
    """Take all steps; return their scalars and what took the steps."""
    placed(method)
    take = CUDAGraphStep(method) if captured else method
    return [
        {name: float(value) for name, value in take(batch).scalars.items()}
        for batch in batches("cuda")
    ], take


# -- without a GPU: which shapes are captured, and what a replay returns --------------------------


@pytest.fixture
def stand_in(monkeypatch):
    """Takes the place of the device: what is captured is decided before it is asked."""
    done = []

    def noting(what):
        return lambda batch: done.append((what, len(batch.labels)))

    def capture(self, batch):
        noting("captured")(batch)
        return SimpleNamespace(replay=noting("replayed"))

    monkeypatch.setattr(CUDAGraphStep, "_aside", lambda self, batch: noting("aside")(batch))
    monkeypatch.setattr(CUDAGraphStep, "_capture", capture)
    method = SimpleNamespace(
        embedder=SimpleNamespace(training=True),
        phase=0,
        prepare=lambda batch: batch,
        step=noting("computed"),
        advance=lambda batch: None,
    )
    return method, done


def take_six(take, *sizes):
    for _ in range(6):
        for rows in sizes:
            zeros = torch.zeros(rows, 1), torch.zeros(rows)
            take(Batch(*zeros, torch.arange(rows), largest_class=4))


def test_no_more_than_two_shapes_are_captured(stand_in):
    method, done = stand_in
    take_six(CUDAGraphStep(method), 16, 12, 8, 4)
    expected = {("aside", rows): 3 for rows in (16, 12, 8, 4)}
    for rows in (16, 12):
        expected |= {("captured", rows): 1, ("replayed", rows): 3}
    for rows in (8, 4):  # from then on as they come
        expected |= {("computed", rows): 3}
    assert Counter(done) == expected


def test_in_another_phase_of_the_method_graphs_are_captured_anew(stand_in):
    method, done = stand_in
    take = CUDAGraphStep(method)
    for method.phase in (0, 1):
        take_six(take, 16)
    assert Counter(done) == {("aside", 16): 6, ("captured", 16): 2, ("replayed", 16): 6}
    assert len(take._graphs) == 1


def test_a_step_is_prepared_and_advanced_around_the_graph(monkeypatch):
    monkeypatch.setattr(CUDAGraphStep, "_aside", lambda self, batch: self.method.step(batch))
    done = []
    method = made(Plain(), MultiSimilarityLoss())
    method.prepare = lambda batch: done.append("prepare") or batch
    method.step = lambda batch: done.append(method.embed(batch)[1].largest_class)
    method.advance = lambda batch: done.append("advance")
    CUDAGraphStep(method)(next(batches("cpu")))
    assert done == ["prepare", 4, "advance"]


def test_a_loss_that_counts_in_python_is_never_captured():
    assert named("plain").capturable and named("hdml").capturable
    assert not made(Plain(), Counting()).capturable
    assert not made(Plain(), ClusteringLoss()).capturable  # it waits for the device
    assert not made(CrossBatchMemory(size=64), MultiSimilarityLoss()).capturable


def give_margins(method, number):
    """Margins as of another tree each time."""
    levels = (torch.arange(8)[:, None] - torch.arange(8)).abs() // 3
    method.loss.set_margins(
        torch.arange(8), levels, 0.1 * number + torch.arange(3) / 4, torch.arange(8) / 40
    )


def test_margins_that_a_loss_gets_begin_a_phase_and_new_ones_are_written_in_their_place():
    method = made(HTL(), HierarchicalTripletLoss())
    phases = [method.phase]
    before = []
    for number in (1, 2):
        give_margins(method, number)
        phases.append(method.phase)
        before.append((method.loss.margins.data_ptr(), float(method.loss.margins[0])))
    assert method.capturable and phases[0] != phases[1] == phases[2]
    assert before[0][0] == before[1][0] and before[0][1] != before[1][1]


# -- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_replayed_steps_take_the_margins_of_their_epoch():
    found = []
    for captured in (False, True):
        mine = placed(made(HTL(), HierarchicalTripletLoss()))
        take = CUDAGraphStep(mine) if captured else mine
        losses = []
        for number, batch in enumerate(batches("cuda", 36)):
            if number in (12, 24):
                give_margins(mine, number // 12)
            losses.append(float(take(batch).scalars["loss"]))
        found.append(losses)
    assert found[1] == pytest.approx(found[0], rel=2e-3, abs=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", METHODS)
def test_replayed_steps_give_what_steps_give(kind):
    (computed, _), (replayed, take) = (
        trained(named(kind), captured=captured) for captured in (False, True)
    )
    assert any(graph is not None for graph in take._graphs.values())
    for one, other in zip(computed, replayed, strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=2e-3, abs=2e-5)


@pytest.mark.gpu
def test_what_a_replay_returned_is_not_overwritten_by_the_next():
    take = CUDAGraphStep(placed(named("plain")))
    kept = [take(batch).scalars["loss"] for batch in batches("cuda")]
    assert len({float(loss) for loss in kept}) == len(kept)


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_is_computed_as_before():
    method = made(Waiting(), MultiSimilarityLoss())
    start = [parameter.detach().clone() for parameter in method.embedder.parameters()]
    with pytest.warns(RuntimeWarning, match=r"training\.cuda_graph=off"):
        scalars, take = trained(method, captured=True)
    assert set(take._graphs.values()) == {None}
    assert len({step["loss"] for step in scalars}) == len(scalars)
    assert torch.randn(2, device="cuda").isfinite().all()  # the generator has left the capture
    for before, after in zip(start, method.embedder.parameters(), strict=True):
        assert not torch.equal(before, after.cpu())


def reserved_after_each_of(rounds):
    held = []
    for _ in range(rounds):
        trained(named("hdml"), captured=True)
        gc.collect()  # schedules and optimizers hold each other
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    return held


@pytest.mark.gpu
def test_a_graph_gives_its_memory_back_with_its_method():
    held = alone(reserved_after_each_of, 3)  # what other tests left lies between the blocks
    assert held[2] <= held[1]


@pytest.mark.gpu
def test_a_resumed_method_goes_on_as_the_first_would_have():
    """Also by graphs of its own: those of before hold the former state of the optimizers."""
    first = named("hdml")
    second = placed(named("hdml"))
    _, take = trained(first, captured=True)
    second.load_training_state(copy.deepcopy(first.training_state()))
    again = CUDAGraphStep(second)
    for batch in batches("cuda"):
        one, other = (
            {name: float(v) for name, v in step(batch).scalars.items()} for step in (take, again)
        )
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    assert any(graph is not None for graph in again._graphs.values())
