"""Checkpoints give back exactly what they were given, and never a part of it."""

import math

import pytest
import torch

from vicinal.errors import RunError
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint


def test_what_is_saved_comes_back(tmp_path):
    state = {
        "a": (1, [2.5, {"b": True}]),
        "c": {0: "zero", "0": "text"},
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
    with pytest.raises(RunError, match="step-00000001"):
        load_checkpoint(path)
