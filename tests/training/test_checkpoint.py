"""Checkpoints give back exactly what they were given, and never a part of it."""

import math

import pytest
import torch
from tests.apart import in_two
from tests.methods.build import build
from torch.testing import assert_close

from vicinal import parallel
from vicinal.data.records import Batch
from vicinal.errors import DataError
from vicinal.losses import NormalizedSoftmaxLoss
from vicinal.methods import Plain
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint


def test_what_is_saved_comes_back(tmp_path):
    state = {
        "a": [1, [2.5, {"b": True}]],
        "c": {0: "zero"},
        "best": math.inf,
        "random": torch.get_rng_state(),
    }
    read = load_checkpoint(save_checkpoint(tmp_path, 3, state))
    assert torch.equal(read.pop("random"), state.pop("random")) and read == state


def test_only_the_newest_are_kept_and_partial_ones_do_not_count(tmp_path):
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, step, {"step": step})
    (tmp_path / ".step-00000011.safetensors.x.part").touch()
    assert [p.name for p in sorted(tmp_path.glob("step-*"))] == [
        "step-00000002.safetensors",
        "step-00000010.safetensors",
    ]
    assert load_checkpoint(latest_checkpoint(tmp_path)) == {"step": 10}
    assert latest_checkpoint(tmp_path / "missing") is None


@pytest.mark.parametrize("value", [save_checkpoint, lambda: 1, pytest])
def test_what_could_not_be_read_is_rejected_when_it_is_first_saved(value, tmp_path):
    with pytest.raises(TypeError, match="is not JSON serializable"):
        save_checkpoint(tmp_path, 0, {"method": value})


def test_a_damaged_file_is_named(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"x": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="step-00000001"):
        load_checkpoint(path)


def method():
    """One whose steps clip gradients, of whose 7 classes two processes have 3 and 4."""
    torch.manual_seed(0)
    embedder = Embedder(Identity(5), 3).double()
    loss = NormalizedSoftmaxLoss(7, 3, divided=True).double()
    return build(Plain(), embedder, loss, None, OptimizerConfig(learning_rate=0.1, clip=0.5))


def taken(trained, folder, *, steps):
    """Take steps, save, and return what is learned and how many proxies are here."""
    rows = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(8) % 7
    for _ in range(steps):
        trained(Batch(*(parallel.part(each) for each in (rows, labels, labels))))
    path = save_checkpoint(folder, steps, {"method": trained.training_state()})
    proxies = trained.loss.proxies
    kept = trained.metric_optimizer.state[proxies]["exp_avg"]
    return {
        "here": [len(each) for each in (proxies, proxies.grad, kept)],
        "proxies": parallel.join_rows(proxies.detach()),
        "kept": parallel.join_rows(kept),
        "head": trained.embedder.head.weight.detach(),
        "path": str(path),
    }


def goes_on(_, folder, path):
    """What two processes learn from what one has saved."""
    parallel.ROWS_AT_ONCE = 2
    again = method()
    again.load_training_state(load_checkpoint(path)["method"])
    return taken(again, folder, steps=2)


def test_checkpoints_of_divided_proxies_are_those_of_one_process(tmp_path):
    one = taken(first := method(), tmp_path / "one", steps=2)
    whole = taken(first, tmp_path / "whole", steps=2)
    path = tmp_path / "one" / "step-00000002.safetensors"
    found = in_two(goes_on, tmp_path, tmp_path / "two", path)
    assert one["here"] == [7] * 3 and [each["here"] for each in found] == [[3] * 3, [4] * 3]
    for name in ("proxies", "kept", "head"):
        for each in found:
            assert_close(each[name], whole[name], rtol=1e-9, atol=1e-9)
    saved, mine = (
        load_checkpoint(tmp_path / name / "step-00000002.safetensors")["method"]
        for name in ("two", "whole")
    )
    assert_close(saved["modules"]["loss.proxies"], mine["modules"]["loss.proxies"])
    assert saved["optimizers"]["metric"]["state"].keys() == {0, 1, 2}
