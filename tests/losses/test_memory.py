"""CrossBatchMemory against one large batch that is built up by hand."""

import copy
import inspect

import pytest
import torch
from tests.gpu import never_waiting
from torch import nn
from torch.testing import assert_close

from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    LOSSES,
    BatchAllTripletLoss,
    ClusteringLoss,
    CrossBatchMemory,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    ProxyNCALoss,
    TripletLoss,
)
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint

N = 8
DIM = 3


@pytest.fixture
def batches(rng):
    """Batches of 4 classes x 2, different from batch to batch."""
    rows = torch.randn(7, N, DIM, generator=rng, dtype=torch.float64)
    classes = [torch.randperm(6, generator=rng)[:4].repeat_interleave(2) for _ in rows]
    return list(zip(rows, classes, strict=True))


def fresh(loss=None, size=20, **options):
    return CrossBatchMemory(loss or BatchAllTripletLoss(), size=size, dim=DIM, **options).double()


def run(memory, batches):
    return [memory(rows.clone().requires_grad_(), labels) for rows, labels in batches]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in LOSSES.values() if kind.takes_reference],
    ids=lambda kind: kind.__name__,
)
def test_each_batch_is_compared_with_the_last_rows(kind, batches):
    """By hand: all rows so far, of which the last 20 are the reference, row r in place r mod 20."""
    memory = fresh(kind())
    loss = kind()
    for step, (rows, labels) in enumerate(batches):
        rows = rows.clone().requires_grad_()
        every = [torch.cat(parts) for parts in zip(*batches[: step + 1], strict=True)]
        last = sorted(range(len(every[0]))[-20:], key=lambda row: row % 20)
        own = torch.tensor([last.index(row) for row in range(len(every[0]))[-N:]])
        values = (memory(rows, labels), loss(rows, labels, every[0][last], every[1][last], own))
        assert_close(*values)
        assert_close(*(torch.autograd.grad(value, rows)[0] for value in values))


def test_warm_up_is_the_plain_loss_and_keeps_nothing(batches):
    values = run(fresh(warmup=3), batches)
    for value, (rows, labels) in zip(values[:3], batches, strict=False):
        assert_close(value, BatchAllTripletLoss()(rows, labels))
    assert_close(values[3:], run(fresh(), batches[3:]))


def test_the_whole_state_passes_through_a_checkpoint_and_a_copy(batches, tmp_path):
    def made():
        return fresh(MarginLoss(class_boundaries=6), warmup=1)

    memory = made()
    run(memory, batches[:5])
    path = save_checkpoint(tmp_path, 5, {"loss": memory.state_dict()})
    again = made()
    again.load_state_dict(load_checkpoint(path)["loss"])
    copied = copy.deepcopy(memory)
    went_on = torch.stack(run(memory, batches[5:]))
    for other in (again, copied):
        assert torch.equal(torch.stack(run(other, batches[5:])), went_on)
        assert (other.calls, other.written) == (memory.calls, memory.written) == (7, 6 * N)
    assert list(memory.parameters()) == list(memory.loss.parameters()) != []


def test_is_neither_written_nor_read_outside_training(batches):
    memory = fresh()
    run(memory, batches[:3])
    before = copy.deepcopy(memory.state_dict())
    rows, labels = batches[4]
    plain = BatchAllTripletLoss()(rows, labels)
    with torch.no_grad():
        assert torch.equal(memory(rows, labels), plain)
    assert torch.equal(memory.eval()(rows.requires_grad_(), labels), plain)
    assert all(torch.equal(part, before[name]) for name, part in memory.state_dict().items())


def test_a_batch_of_nan_is_heard_once_and_not_remembered(batches):
    nothing = torch.full((N, DIM), torch.nan)
    for steps in (1, 0):
        memory = fresh(MultiSimilarityLoss(), size=24)
        run(memory, batches[:steps])
        assert memory(nothing.clone().requires_grad_(), batches[0][1]).isnan()
        assert all(value.isfinite() for value in run(memory, batches[1:3]))


@pytest.mark.parametrize(
    "loss",
    [ProxyNCALoss(3, DIM), ClusteringLoss(), TripletLoss(blocks=True), NPairLoss(blocks=True)],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_without_a_reference_are_rejected(loss):
    with pytest.raises(ConfigError, match=f"cross-batch memory .*{type(loss).__name__}"):
        CrossBatchMemory(loss, size=20, dim=DIM)


def test_what_does_not_fit_is_rejected_with_the_numbers(batches):
    init = inspect.unwrap(CrossBatchMemory.__init__)  # without the tests' type checks
    with pytest.raises(ConfigError, match=r"a tuple loss of vicinal\.losses, got MSELoss"):
        init(CrossBatchMemory.__new__(CrossBatchMemory), nn.MSELoss(), size=2, dim=2)
    with pytest.raises(ConfigError, match="size must be at least 1, got 0"):
        fresh(size=0)
    rows, labels = batches[0]
    for size, dim in ((5, 3), (20, 4)):
        message = rf"of {size} rows of {dim} dimensions cannot take in a batch \[8, 3\]"
        with pytest.raises(DataError, match=message):
            CrossBatchMemory(BatchAllTripletLoss(), size=size, dim=dim)(rows, labels)


@pytest.mark.gpu
def test_a_device_is_not_waited_for(batches):
    """BatchHard waits once for the width of its positives; the memory adds nothing to that."""
    memory = fresh().float().cuda()
    memory.loss = nn.Identity()
    memory.loss.forward = lambda rows, *_: rows.sum()
    given = [(rows.float().cuda().requires_grad_(), labels.cuda()) for rows, labels in batches]
    with never_waiting():
        for rows, labels in given:
            memory(rows, labels)
