"""The HDML recipes and their plain twins: one start, and for the same tuples the same batches."""

import numpy as np
import pytest
import torch

from vicinal.data.records import FeatureArray, ImageArray, Records
from vicinal.methods.hdml import HDML
from vicinal.methods.plain import Plain
from vicinal.training.experiment import build_method
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe

SMALL = {
    "cub_features_hdml_n_pair": ["classes=4", "per_class=2", "dim=8"],
    "cub_features_hdml_triplet": ["triplets=4", "per_class=3", "dim=8"],
    "omniglot_hdml_n_pair": ["classes=4", "per_class=2", "dim=8"],
}
ABLATIONS = {
    "without the label term": ["hdml.label_factor=0"],
    "without the reconstruction term": ["hdml.reconstruction_factor=0"],
    "without a generator": ["hdml.generate=false", "hdml.real_share=0.5"],
    "the authors' scale": ["hdml.scale=authors"],
    "the paper's scale": ["hdml.scale=paper"],
    "another alpha": ["hdml.alpha=2"],
}


def train_records(name):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 6)
    if name.startswith("omniglot"):
        source = ImageArray(rng.integers(0, 255, (60, 28, 28), dtype=np.uint8), [str(i) for i in range(60)])
    else:
        source = FeatureArray(rng.normal(size=(60, 12)).astype(np.float32), [str(i) for i in range(60)])
    return Records("r", source, labels, tuple(map(str, range(10))), np.array(["train"] * 60))


def built(name, *overrides):
    recipe = apply(find_recipe(name), [*SMALL[name], *overrides])
    return build_method(recipe, train_records(name), torch.device("cpu"))


@pytest.mark.parametrize("name", SMALL)
def test_the_twins_start_alike_and_see_the_same_batches(name):
    hdml, plain, strongest = (built(name, f"variant={variant}") for variant in ("hdml", "plain", "strongest"))
    assert isinstance(hdml, HDML) and isinstance(plain, Plain) and isinstance(strongest, Plain)
    for twin in (plain, strongest):
        ours, theirs = hdml.embedder.state_dict(), twin.embedder.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert [hdml.batches(epoch) for epoch in range(3)] == [plain.batches(epoch) for epoch in range(3)]
    assert len(strongest.batches(0)[0]) == len(plain.batches(0)[0]), "as many images"


@pytest.mark.parametrize("change", ABLATIONS.values(), ids=ABLATIONS)
def test_ablations_are_overrides(change):
    method = built("cub_features_hdml_n_pair", *change)
    assert isinstance(method, HDML) and (method.generator is None) == ("hdml.generate=false" in change)
