"""Two processes with half a batch each take the step that one process takes with the whole."""

import copy
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.apart import alone, both
from tests.methods.build import DESCENT, build
from torch.autograd import grad
from torch.func import jvp
from torch.testing import assert_close

from vicinal import parallel
from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.transforms import ImageTransform
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.losses import BatchAllTripletLoss
from vicinal.methods import Plain
from vicinal.miners import distance_weighted, semi_hard
from vicinal.models import Embedder, Identity, SmallConvNet
from vicinal.parallel import (
    Agreement,
    average_gradients,
    averaged_gradients,
    from_all,
    from_first,
    gather,
    part,
    pick_device,
    processes,
    rank,
    share_norms,
    spread,
)


def whole_batch() -> Batch:
    rng = torch.Generator().manual_seed(0)
    return Batch(
        torch.randn(8, 5, generator=rng, dtype=torch.float64),
        torch.arange(8) // 2 % 3,
        torch.arange(8),
    )


def make_method() -> Plain:
    torch.manual_seed(0)
    return build(
        Plain(), Embedder(Identity(5), 3).double(), BatchAllTripletLoss(margin=1.0), None, DESCENT
    )


def curved(rows: torch.Tensor) -> torch.Tensor:
    """A loss whose second derivative mixes rows."""
    return (rows @ rows.T).pow(2).sum()


def derivatives(whole: Batch, mine: slice) -> dict[str, torch.Tensor]:
    """Of ``curved`` in this process's rows: its gradient, that of the gradient's square, and one in
    forward mode."""
    rows = whole.inputs[mine].clone().requires_grad_()
    labels = whole.labels[mine]
    (first,) = grad(curved(gather(rows, labels)[0]), rows, create_graph=True)
    first = first / processes()
    (second,) = grad(gather(first, labels)[0].pow(2).sum(), rows)
    along = jvp(
        lambda moved: curved(gather(moved, labels)[0]), (rows.detach(),), (torch.ones_like(rows),)
    )[1]
    return {
        "first": first.detach(),
        "second": second / processes(),
        "along": along.expand(len(rows)),
    }


def five_layers():
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(5, 5) for _ in range(5)]).double()


def through(layers, value):
    for place in (3, 1, 2, 4):
        value = layers[place](value)
    return value


def of_layers(layers, rows):
    """The mean gradients of a loss that enters the fourth layer first and the first not at all, and
    after which of them an exchange had begun."""
    parameters = [*layers.parameters()]
    begun = []
    send = dist.all_reduce
    dist.all_reduce = lambda *given, **how: begun.append(len(known)) or send(*given, **how)
    known = []
    hooks = [each.register_hook(known.append) for each in parameters]
    try:
        gradients = averaged_gradients(through(layers, rows).square().sum(), parameters)
    finally:
        dist.all_reduce = send
        for hook in hooks:
            hook.remove()
    return {"gradients": gradients[2:], "begun": begun}


class Torn(ImageArray):
    """Pictures of which some cannot be read."""

    in_memory = False

    def read(self, index):
        if index in (0, 7):
            raise DataError(f"{self.names[index]} is torn")
        return super().read(index)


def embedded() -> dict[str, object]:
    """Nine pictures, shared by whoever is there; two of them torn."""
    pixels = np.random.default_rng(0).integers(0, 255, (9, 8, 8), dtype=np.uint8)
    source = Torn(pixels, [f"picture {number}" for number in range(9)])
    records = Records("pictures", source, np.arange(9) // 3, ("a", "b", "c"), np.full(9, "test"))
    torch.manual_seed(0)
    encoder = Encoder(
        Embedder(SmallConvNet(1, (4,)), 3), ImageTransform(size=8, channels=1), torch.device("cpu")
    )
    found = encoder.embed(records, batch_size=2, skip_corrupt=True)
    return {"vectors": found.vectors, "labels": found.labels, "skipped": list(found.skipped)}


def one_of_two(number: int, folder: str) -> None:
    """What one process does; it writes what the test compares."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    try:
        whole = whole_batch()
        method = make_method()
        mine = slice(4 * number, 4 * number + 4)
        scalars = method(Batch(whole.inputs[mine], whole.labels[mine], whole.indices[mine])).scalars
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
            "derivatives": derivatives(whole, mine),
            "embedded": embedded(),
            "parts": [list(part(range(length))) for length in (8, 5, 1)],
            "from_first": from_first(lambda: f"of {rank()}"),
            "from_all": from_all(rank()),
        }
        parallel.BUCKET = 20  # two buckets or three
        found["meanwhile"] = of_layers(five_layers(), whole.inputs[mine])
        agreement = Agreement()
        found["agreed"] = [agreement(number == 1 and step == 2) for step in range(5)]
        norm = torch.nn.BatchNorm1d(2)
        norm.running_mean += number
        spread(norm.buffers())
        found["buffer"] = norm.running_mean
        torch.save(found, f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
# Torch, on its first forward mode.
def test_two_processes_take_the_step_of_one(tmp_path):
    both(one_of_two, str(tmp_path))
    first, second = (
        torch.load(tmp_path / f"{number}.pt", weights_only=True) for number in range(2)
    )
    whole = whole_batch()
    method = make_method()
    scalars = method(whole).scalars
    for found in (first, second):
        assert_close(found["loss"], scalars["loss"])
        assert_close(found["head"], method.embedder.head.weight.detach())
        assert torch.equal(found["rows"], whole.inputs) and torch.equal(
            found["labels"], whole.labels
        )
        assert torch.equal(
            found["semi_hard"], torch.stack(tuple(semi_hard(whole.inputs, whole.labels)))
        )
        alone = embedded()
        assert_close(found["embedded"]["vectors"], alone["vectors"])
        assert torch.equal(found["embedded"]["labels"], alone["labels"])
        assert found["embedded"]["skipped"] == alone["skipped"] == ["picture 0", "picture 7"]
        assert found["from_first"] == "of 0" and found["from_all"] == [0, 1]
        assert found["agreed"] == [False, False, False, True, False], (
            "one step after one of them has asked"
        )
        assert torch.equal(found["buffer"], torch.zeros(2))
    for name, value in derivatives(whole, slice(None)).items():
        assert_close(torch.cat([found["derivatives"][name] for found in (first, second)]), value)
    assert first["parts"] == [[0, 1, 2, 3], [0, 1], []] and second["parts"] == [
        [4, 5, 6, 7],
        [2, 3, 4],
        [0],
    ]
    layers = five_layers()
    value = through(layers, whole.inputs)
    expected = grad(value.square().sum() / 2, [*layers[1:].parameters()])
    for found in (first, second):
        assert_close(found["meanwhile"]["gradients"], [*expected])
        assert found["meanwhile"]["begun"][0] < 8, "the first exchange waits for the last gradient"
    assert torch.equal(first["drawn"], second["drawn"]), (
        "equal seeds give equal tuples in every process"
    )
    assert [first["place"].tolist(), second["place"].tolist()] == [[0, 2], [1, 2]]


def test_one_process_changes_nothing():
    rows = torch.randn(3, 2)
    labels = torch.arange(3)
    assert gather(rows, labels) == (rows, labels)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), 3.0)
    before = copy.deepcopy(parameter.grad)
    average_gradients([parameter])
    assert torch.equal(parameter.grad, before)
    assert (rank(), processes()) == (0, 1)
    assert part(rows) is rows and from_first(lambda: 3) == 3 and from_all(3) == [3]
    assert [Agreement()(wish) for wish in (False, True)] == [False, True]


def faults():
    """Pages that tensors need which are made after others of their size are gone."""
    import resource

    pick_device("cpu")
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="the C library's own business")
def test_memory_that_is_freed_serves_the_next_tensor():
    assert alone(faults) < 1000  # of 16,384 pages


def test_shared_norms_keep_names_and_tensors():
    network = Embedder(SmallConvNet(1, (4, 8)), 2)
    before = dict(network.state_dict(keep_vars=True))
    share_norms(network)
    after = dict(network.state_dict(keep_vars=True))
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)
    assert sum(isinstance(module, torch.nn.SyncBatchNorm) for module in network.modules()) == 2
