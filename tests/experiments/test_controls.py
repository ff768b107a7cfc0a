"""ALA's controls: weights by chance, and an assessor without memory."""

import copy
import runpy
from pathlib import Path

import pytest
import torch

CONTROLS = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "controls.py"))


def test_random_weights_have_the_mean_and_spread_asked_for():
    weights = CONTROLS["Random"](0.7, 0.2, 0)(torch.zeros(100_000, 3, 1)).weights
    assert float(weights.mean()) == pytest.approx(0.7, abs=5e-3)
    assert float(weights.std()) == pytest.approx(0.2, abs=5e-3)


def test_random_weights_follow_from_seed_and_episode_alone():
    members = torch.zeros(12, 3, 4)
    assessor = CONTROLS["Random"](0.5, 0.1, 3)
    first = assessor(members)
    again = copy.deepcopy(assessor)
    assert torch.equal(assessor(members).weights, first.weights)
    assessor.advance(first.state)
    second = assessor(members).weights
    assert not torch.equal(second, first.weights)
    again.load_state_dict(assessor.state_dict())
    assert torch.equal(again(members).weights, second) and not assessor.learns


def test_without_memory_all_weights_start_at_one_half():
    method = CONTROLS["WithoutMemory"]()
    assert torch.equal(
        method.build_assessor(12)(torch.rand(5, 3, 4)).weights, torch.full((5,), 0.5)
    )
