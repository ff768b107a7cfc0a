"""Recorded steps: the same numbers as steps that are done, whatever comes between them."""

import copy
import gc
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vicinal.data.records import Batch
from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    CrossBatchMemory,
    HardExemplarLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    NPairLoss,
)
from vicinal.methods import recording
from vicinal.methods.hdml import HDMLTraining
from vicinal.methods.her import HER, HERTraining
from vicinal.methods.loop import LoOpTraining
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.plain import PlainTraining
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models import Embedder, OrientationHead, SmallConvNet, TwoStreamEmbedder
from vicinal.sampling import PKSampler
from vicinal.synthesis import HDMLConfig, OptimalNegatives

LABELS = torch.arange(8).repeat_interleave(4)


class Counting(nn.Module):
    """A loss that changes its mind in Python."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, embeddings, labels):
        self.calls += 1
        return embeddings.square().mean() * self.calls


def built(kind, loss=None):
    torch.manual_seed(0)
    embedder, optimisation = Embedder(SmallConvNet(1, (8, 16)), 8), OptimizerConfig(learning_rate=1e-2)
    sampler = PKSampler(LABELS.tolist(), classes=4, per_class=4, seed=0)
    if kind.startswith("loop"):
        negatives, wait = OptimalNegatives(MultiSimilarityLoss()), 8 if kind == "loop, waiting" else 0
        return LoOpTraining.from_config(embedder, negatives, sampler, optimisation, steps=30 * len(sampler), wait=wait)
    if kind == "hdml":
        settings, labels = HDMLConfig(window=4), LABELS.numpy()
        return HDMLTraining.from_config(
            embedder, NPairLoss(), sampler, optimisation, settings, labels=labels, steps=30 * len(sampler)
        )
    if kind.startswith("her"):
        two, classes = TwoStreamEmbedder(embedder, copy.deepcopy(embedder)), NormalizedSoftmaxLoss(8, 8)
        parts = {"classifier": classes} if kind == "her, classes" else {}
        loss, turns = HardExemplarLoss(), HER()
        return HERTraining.from_config(
            two, loss, sampler, optimisation, turns, head=OrientationHead(8), steps=30 * len(sampler), seed=0, **parts
        )
    own = {"danml": AdaptiveNeighborhoodLoss(), "softmax": NormalizedSoftmaxLoss(8, 8, known=tuple(range(8)))}
    loss = loss or own.get(kind, MultiSimilarityLoss())
    return PlainTraining.from_config(embedder, loss, sampler, optimisation, steps=30 * len(sampler))


def batches(device, count=12):
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        rows = 16 if number % 5 else 12  # every fifth has another shape
        labels = LABELS[:rows]
        inputs = torch.randn(rows, 1, 12, 12, generator=generator) + labels.view(-1, 1, 1, 1) / 4
        yield Batch(inputs.to(device), labels.to(device), torch.arange(rows), largest_class=4)


def trained(method, device, *, recorded):
    method.to(device)
    method.embedder.accelerate(None, recorded=recorded)
    method.embedder.train()
    return [{name: float(value) for name, value in method.step(batch).items()} for batch in batches(device)]


@pytest.mark.parametrize("kind", ["plain", "loop", "hdml", "her"])
def test_on_a_cpu_nothing_is_recorded(kind):
    plain, asked = (trained(built(kind), torch.device("cpu"), recorded=recorded) for recorded in (False, True))
    assert plain == asked


def test_no_more_than_two_shapes_are_recorded(monkeypatch):
    """What is asked of the device is told by a stand-in: which shapes are recorded is decided before."""
    done, recorded = [], []
    monkeypatch.setattr(recording, "_done", lambda work, given, largest: done.append(given[0].shape))
    monkeypatch.setattr(Recorder, "_aside", lambda self, work, given, largest: None)
    monkeypatch.setattr(Recorder, "_recorded", lambda self, work, given, largest: recorded.append(given[0].shape))
    embedder = Embedder(SmallConvNet(1, (4,)), 4)
    embedder.accelerate(None, recorded=True)
    recorder = Recorder(embedder, [], pure=True)
    for _ in range(6):
        for rows in (16, 12, 8, 4):
            inputs = SimpleNamespace(shape=(rows,), dtype=None, is_cuda=True, stride=lambda: (1,))
            recorder(None, SimpleNamespace(inputs=inputs, labels=None, largest_class=4))
    assert recorded == [(16,), (12,)]
    assert done.count((8,)) == done.count((4,)) == 3  # from then on as they come


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["plain", "loop", "loop, waiting", "hdml", "danml", "softmax", "her", "her, classes"])
def test_replayed_steps_give_what_steps_give(kind):
    device, methods = torch.device("cuda"), (built(kind), built(kind))
    done, replayed = (trained(method, device, recorded=how) for method, how in zip(methods, (False, True), strict=True))
    assert any(recording is not None for recording in methods[1]._recorder._recordings.values())
    for one, other in zip(done, replayed, strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=2e-3, abs=2e-5)


@pytest.mark.gpu
def test_what_a_replay_returned_is_not_overwritten_by_the_next():
    method, device = built("plain"), torch.device("cuda")
    method.to(device)
    method.embedder.accelerate(None, recorded=True)
    method.embedder.train()
    kept = [method.step(batch)["loss"] for batch in batches(device)]
    assert len({float(loss) for loss in kept}) == len(kept)


@pytest.mark.gpu
def test_a_loss_that_counts_in_python_is_never_recorded():
    for loss in (Counting(), CrossBatchMemory(MultiSimilarityLoss(), size=64, dim=8)):
        method = built("plain", loss)
        trained(method, torch.device("cuda"), recorded=True)
        assert not method._recorder._recordings
    assert method.loss.written == sum(len(batch.labels) for batch in batches("cpu"))


@pytest.mark.gpu
def test_work_that_waits_for_the_device_is_done_as_before():
    embedder = Embedder(SmallConvNet(1, (4,)), 4).cuda()
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.1)

    def work(inputs, labels):
        loss = embedder(inputs).square().mean()
        differentiate(loss * loss.item(), learnt(optimizer))
        return Work({"loss": loss.detach()})

    recorder = Recorder(embedder, learnt(optimizer), pure=True)
    embedder.accelerate(None, recorded=True)

    def all_steps():
        for batch in batches(torch.device("cuda")):
            recorder(work, batch)
            assert all(parameter.grad is not None for parameter in learnt(optimizer))

    with pytest.warns(RuntimeWarning, match="record=off"):
        all_steps()
    assert set(recorder._recordings.values()) == {None}


@pytest.mark.gpu
def test_a_recording_gives_its_memory_back_with_its_method():
    device, held = torch.device("cuda"), []
    for _ in range(3):
        trained(built("hdml"), device, recorded=True)
        gc.collect()  # schedules and optimisers hold each other
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    assert held[2] <= held[1]


@pytest.mark.gpu
def test_a_resumed_method_goes_on_as_the_first_would_have():
    device, first = torch.device("cuda"), built("hdml")
    trained(first, device, recorded=True)
    state = copy.deepcopy(first.state_dict())
    second = built("hdml")
    trained(second, device, recorded=True)
    first.load_state_dict(copy.deepcopy(state))
    second.load_state_dict(state)
    batch = next(batches(device))
    one, other = first.step(batch), second.step(batch)
    assert {n: float(v) for n, v in one.items()} == pytest.approx({n: float(v) for n, v in other.items()}, rel=1e-3)
