"""Checkpoints give back exactly what they were given, and never a part of it."""

import math

import pytest
import torch

from vicinal.errors import ConfigError, RunError
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint


def test_an_optimizer_state_round_trips_bit_for_bit(tmp_path):
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
    layer(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "note": None,
        "best": math.inf,
    }
    read = load_checkpoint(save_checkpoint(tmp_path, 1, state))
    assert read["best"] == math.inf and read["note"] is None
    assert read["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    for key, slot in state["optimizer"]["state"].items():
        for name, value in slot.items():
            assert torch.equal(read["optimizer"]["state"][key][name], value)
    assert torch.equal(read["random"], state["random"])


def test_types_survive(tmp_path):
    state = {
        "a": (1, [2.5, {"b": True}]),
        "c": {0: "zero", "0": "text"},
        "shared": [t := torch.ones(2), t],
    }
    read = load_checkpoint(save_checkpoint(tmp_path, 3, state))
    assert read["a"] == state["a"] and read["c"] == state["c"]
    assert torch.equal(read["shared"][1], t)


def test_only_the_newest_are_kept_and_partial_ones_do_not_count(tmp_path):
    for step in (1, 2, 10):
        save_checkpoint(tmp_path, step, {"step": step}, keep=2)
    (tmp_path / ".step-00000011.part").mkdir()
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-00000002", "step-00000010"]
    assert load_checkpoint(latest_checkpoint(tmp_path)) == {"step": 10}
    save_checkpoint(tmp_path, 12, {})
    assert not list(tmp_path.glob(".step-*"))


def test_no_checkpoint_is_none(tmp_path):
    assert latest_checkpoint(tmp_path / "missing") is None


def test_what_would_need_pickle_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match=r"state\.method is a function"):
        save_checkpoint(tmp_path, 0, {"method": save_checkpoint})


def test_a_damaged_file_is_named(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"x": torch.ones(100)})
    whole = (path / "state.safetensors").read_bytes()
    (path / "state.safetensors").write_bytes(whole[:50])
    with pytest.raises(RunError, match="step-00000001"):
        load_checkpoint(path)
