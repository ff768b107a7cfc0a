"""Two processes with half a batch each take the step that one process takes with the whole."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from vicinal.data.records import Batch
from vicinal.losses import BatchAllTripletLoss
from vicinal.methods.plain import Plain
from vicinal.mining import distance_weighted, semi_hard
from vicinal.models import Embedder, Identity
from vicinal.parallel import average_gradients, gather, processes, rank

PROCESSES = 2


def whole_batch() -> Batch:
    rng = torch.Generator().manual_seed(0)
    return Batch(torch.randn(8, 5, generator=rng, dtype=torch.float64), torch.arange(8) // 2 % 3, torch.arange(8))


def make_method() -> Plain:
    torch.manual_seed(0)
    embedder = Embedder(Identity(5), 3).double()
    return Plain(embedder, BatchAllTripletLoss(margin=1.0), None, torch.optim.SGD(embedder.parameters(), lr=0.1))


def one_of_two(number: int, folder: str) -> None:
    """What one process does; it writes what the test compares."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=PROCESSES)
    try:
        whole, method = whole_batch(), make_method()
        mine = slice(4 * number, 4 * number + 4)
        scalars = method.step(Batch(whole.inputs[mine], whole.labels[mine], whole.indices[mine]))
        rows, labels = gather(whole.inputs[mine], whole.labels[mine])
        drawn = distance_weighted(rows, labels, generator=torch.Generator().manual_seed(3))
        found = {
            "loss": scalars["loss"],
            "head": method.embedder.head.weight.detach(),
            "rows": rows,
            "labels": labels,
            "semi_hard": torch.stack(tuple(semi_hard(rows, labels))),
            "drawn": torch.stack(tuple(drawn)),
            "place": torch.tensor([rank(), processes()]),
        }
        torch.save(found, f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()


def test_two_processes_take_the_step_of_one(tmp_path):
    mp.start_processes(one_of_two, args=(str(tmp_path),), nprocs=PROCESSES, start_method="spawn")
    first, second = (torch.load(tmp_path / f"{number}.pt", weights_only=True) for number in range(PROCESSES))
    whole, method = whole_batch(), make_method()
    scalars = method.step(whole)
    for found in (first, second):
        torch.testing.assert_close(found["loss"], scalars["loss"])
        torch.testing.assert_close(found["head"], method.embedder.head.weight.detach())
        assert torch.equal(found["rows"], whole.inputs) and torch.equal(found["labels"], whole.labels)
        assert torch.equal(found["semi_hard"], torch.stack(tuple(semi_hard(whole.inputs, whole.labels))))
    assert torch.equal(first["drawn"], second["drawn"]), "equal seeds give equal tuples in every process"
    assert [first["place"].tolist(), second["place"].tolist()] == [[0, 2], [1, 2]]


def test_one_process_changes_nothing():
    rows, labels = torch.randn(3, 2), torch.arange(3)
    assert gather(rows, labels) == (rows, labels)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 3.0)
    before = copy.deepcopy(parameter.grad)
    average_gradients([parameter])
    assert torch.equal(parameter.grad, before)
    assert (rank(), processes()) == (0, 1)


@pytest.mark.parametrize("factor", [1, 2])
def test_the_guard_would_notice_a_gradient_of_another_size(factor):
    """The comparison above tells a step apart from one of twice its length."""
    method, twin = make_method(), make_method()
    method.step(whole_batch())
    twin.optimizer.param_groups[0]["lr"] *= factor
    twin.step(whole_batch())
    assert torch.allclose(method.embedder.head.weight, twin.embedder.head.weight) == (factor == 1)
