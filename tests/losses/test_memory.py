"""CrossBatchMemory against one large batch that is built up by hand."""

import copy
import importlib
import inspect
import pkgutil

import pytest
import torch
from tests.gpu import never_waiting
from torch import nn

import vicinal.losses
from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    BatchAllTripletLoss,
    ClusteringLoss,
    CrossBatchMemory,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    TripletLoss,
)
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint

N, DIM = 8, 3


def losses():
    """Every loss that can be made without arguments and compares rows."""
    for found in pkgutil.iter_modules(vicinal.losses.__path__, "vicinal.losses."):
        for kind in vars(importlib.import_module(found.name)).values():
            ours = (
                inspect.isclass(kind) and issubclass(kind, Loss) and kind.__module__ == found.name
            )
            if ours and not inspect.isabstract(kind) and getattr(kind, "takes_reference", True):
                required = [
                    p for p in inspect.signature(kind).parameters.values() if p.default is p.empty
                ]
                if not required:
                    yield kind


@pytest.fixture
def batches(rng):
    """Batches of 4 classes x 2, different from batch to batch."""
    return [
        (
            torch.randn(N, DIM, generator=rng, dtype=torch.float64),
            (torch.randperm(6, generator=rng)[:4]).repeat_interleave(2),
        )
        for _ in range(7)
    ]


def run(memory, batches):
    return [memory(rows.clone().requires_grad_(), labels) for rows, labels in batches]


@pytest.mark.parametrize("kind", list(losses()), ids=lambda kind: kind.__name__)
def test_each_batch_is_compared_with_the_last_rows(kind, batches):
    """By hand: all rows so far, of which the last 20 are the reference, row r in place r mod 20."""
    memory, loss = CrossBatchMemory(kind(), size=20, dim=DIM).double(), kind()
    for step, (rows, labels) in enumerate(batches):
        rows = rows.clone().requires_grad_()
        value = memory(rows, labels)
        every = [torch.cat(parts) for parts in zip(*batches[: step + 1], strict=True)]
        last = sorted(range(len(every[0]))[-20:], key=lambda row: row % 20)
        own = torch.tensor([last.index(row) for row in range(len(every[0]))[-N:]])
        expected = loss(rows, labels, every[0][last], every[1][last], own)
        torch.testing.assert_close(value, expected)
        gradients = [torch.autograd.grad(v, rows)[0] for v in (value, expected)]
        torch.testing.assert_close(*gradients)


def test_warm_up_is_the_plain_loss_and_keeps_nothing(batches):
    memory, plain = (
        CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM, warmup=3).double(),
        BatchAllTripletLoss(),
    )
    values = run(memory, batches)
    for value, (rows, labels) in zip(values[:3], batches, strict=False):
        torch.testing.assert_close(value, plain(rows, labels))
    after = CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM).double()
    torch.testing.assert_close(torch.stack(values[3:]), torch.stack(run(after, batches[3:])))


def test_the_whole_state_is_saved_and_restored(batches):
    def fresh():
        return CrossBatchMemory(MultiSimilarityLoss(), size=20, dim=DIM, warmup=1).double()

    memory = fresh()
    run(memory, batches[:5])
    state = copy.deepcopy(memory.state_dict())
    assert all(isinstance(part, torch.Tensor) for part in state.values())
    went_on = run(memory, batches[5:])
    again = fresh()
    again.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(run(again, batches[5:]), went_on, strict=True))
    assert (again.calls, again.written) == (memory.calls, memory.written) == (7, 6 * N)
    copied = copy.deepcopy(memory)
    assert torch.equal(run(copied, batches[:1])[0], run(memory, batches[:1])[0])


def test_its_state_passes_through_a_checkpoint(batches, tmp_path):
    memory = CrossBatchMemory(MarginLoss(class_boundaries=6), size=20, dim=DIM).double()
    run(memory, batches[:3])
    path = save_checkpoint(tmp_path, 3, {"loss": memory.state_dict()})
    again = CrossBatchMemory(MarginLoss(class_boundaries=6), size=20, dim=DIM).double()
    again.load_state_dict(load_checkpoint(path)["loss"])
    assert all(
        torch.equal(a, b)
        for a, b in zip(run(again, batches[3:]), run(memory, batches[3:]), strict=True)
    )


def test_is_neither_written_nor_read_outside_training(batches):
    memory, (rows, labels) = (
        CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM).double(),
        batches[4],
    )
    run(memory, batches[:3])
    before = copy.deepcopy(memory.state_dict())
    with torch.no_grad():
        looked = memory(rows, labels)
    measured = memory.eval()(rows.requires_grad_(), labels)
    plain = BatchAllTripletLoss()(rows, labels)
    assert torch.equal(looked, plain) and torch.equal(measured, plain)
    assert all(torch.equal(part, before[name]) for name, part in memory.state_dict().items())


def test_memory_passes_no_gradient_and_losses_may_be_differentiated_later(batches):
    memory = CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM).double()
    rows = [r.clone().requires_grad_() for r, _ in batches]
    total = sum(memory(r, labels) for r, (_, labels) in zip(rows, batches, strict=True))
    total.backward()  # the queue has moved on since most of these were computed
    alone = CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM).double()
    for row, (given, labels) in zip(rows, batches, strict=True):
        again = given.clone().requires_grad_()
        torch.testing.assert_close(torch.autograd.grad(alone(again, labels), again)[0], row.grad)
    assert not memory.embeddings.requires_grad


def test_half_precision_and_any_integer_label(batches):
    memory, twin = (CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM) for _ in range(2))
    for rows, labels in batches[:4]:
        coarse = rows.half().requires_grad_()
        value = memory(coarse, labels.to(torch.uint8))
        assert torch.equal(value, twin(coarse.float(), labels)) and value.dtype == torch.float32
    assert memory.embeddings.dtype == torch.float32


def test_a_batch_may_fill_the_memory_and_wrap_around(batches):
    memory = CrossBatchMemory(BatchAllTripletLoss(), size=N, dim=DIM).double()
    for value, (rows, labels) in zip(run(memory, batches), batches, strict=True):
        torch.testing.assert_close(value, BatchAllTripletLoss()(rows, labels))
    odd = CrossBatchMemory(BatchAllTripletLoss(), size=N + 3, dim=DIM).double()
    run(odd, batches)
    kept = {tuple(row) for row in odd.embeddings.tolist()}
    assert kept == {
        tuple(row) for row in torch.cat([rows for rows, _ in batches])[-N - 3 :].tolist()
    }


def test_parameters_of_its_loss_are_its_own():
    memory = CrossBatchMemory(MarginLoss(class_boundaries=4), size=20, dim=DIM)
    assert list(memory.parameters()) == list(memory.loss.parameters()) != []
    assert "size=20, dim=3, warmup=0" in repr(memory) and "MarginLoss" in repr(memory)


@pytest.mark.parametrize(
    "loss",
    [
        *(ProxyNCALoss(3, DIM), ProxyAnchorLoss(3, DIM), SoftTripleLoss(3, DIM), ClusteringLoss()),
        *(TripletLoss(blocks=True), NPairLoss(blocks=True)),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_without_a_reference_are_rejected(loss):
    with pytest.raises(ConfigError, match=f"cross-batch memory .*{type(loss).__name__}"):
        CrossBatchMemory(loss, size=20, dim=DIM)


def test_what_does_not_fit_is_rejected_with_the_numbers(batches):
    with pytest.raises(ConfigError, match=r"a tuple loss of vicinal\.losses, got MSELoss"):
        inspect.unwrap(CrossBatchMemory.__init__)(
            CrossBatchMemory.__new__(CrossBatchMemory), nn.MSELoss(), size=2, dim=2
        )
    with pytest.raises(ConfigError, match="size=0"):
        CrossBatchMemory(BatchAllTripletLoss(), size=0, dim=DIM)
    rows, labels = batches[0]
    with pytest.raises(
        DataError, match=r"of 5 rows of 3 dimensions cannot take in a batch \[8, 3\]"
    ):
        CrossBatchMemory(BatchAllTripletLoss(), size=5, dim=DIM)(rows, labels)
    with pytest.raises(
        DataError, match=r"of 20 rows of 4 dimensions cannot take in a batch \[8, 3\]"
    ):
        CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=4)(rows, labels)


@pytest.mark.gpu
def test_a_device_is_not_waited_for(batches):
    """BatchHard waits once for the width of its positives; the memory adds nothing to that."""
    memory = CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=DIM).cuda()
    memory.loss = nn.Identity()
    memory.loss.forward = lambda rows, *_: rows.sum()
    given = [(rows.float().cuda().requires_grad_(), labels.cuda()) for rows, labels in batches]
    with never_waiting():
        for rows, labels in given:
            memory(rows, labels)
