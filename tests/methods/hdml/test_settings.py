"""The presets of HDML's scale, and settings that cannot work."""

import pytest
import torch
from tests.methods.build import build

from vicinal.losses import BatchAllTripletLoss, NPairLoss, TripletLoss
from vicinal.methods.hdml import HDML
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import PKSampler


def test_presets_are_the_switches_and_a_switch_set_apart_wins():
    authors = HDML("authors").chosen()
    paper = HDML("paper").chosen()
    assert (authors.averaged, paper.averaged) == ("weighted", "metric")
    assert (authors.label_factor, paper.label_factor) == (5e3, 0.5)
    assert (authors.label_average, paper.label_average) == ("parts", "sum")
    mixed = HDML("authors", alpha=1.0).chosen()
    assert (mixed.averaged, mixed.alpha, mixed.label_factor) == ("weighted", 1.0, 5e3)


def test_triplets_have_the_papers_smaller_alpha_and_one_mean_over_rows():
    preset = HDML("authors").chosen(pairs=False)
    assert (preset.alpha, preset.label_average) == (7.0, "rows")
    assert HDML("authors", alpha=3.0).chosen(pairs=False).alpha == 3.0
    assert HDML("ours").chosen(pairs=False) == HDML("ours").chosen()


@pytest.mark.parametrize(
    ("loss", "alpha"), [(TripletLoss(), 7.0), (BatchAllTripletLoss(), 7.0), (NPairLoss(), 90.0)]
)
@pytest.mark.parametrize("form", ["paper", "authors"])
def test_triplets_in_no_blocks_have_it_too(form, loss, alpha):
    labels = torch.arange(4).repeat_interleave(2)
    sampler = PKSampler(labels.numpy(), classes=2, per_class=2, seed=0)
    embedder = Embedder(Identity(3), 2)
    optimizer = OptimizerConfig()
    method = build(HDML(form), embedder, loss, sampler, optimizer, labels=labels)
    assert method.values.alpha == alpha
