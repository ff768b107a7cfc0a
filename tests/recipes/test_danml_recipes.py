"""The DANML recipes: every variant from one start, over the same batches."""

from typing import get_args

import numpy as np
import pytest
import torch

from vicinal.data.records import FeatureArray, Records
from vicinal.errors import ConfigError
from vicinal.losses import AdaptiveNeighborhoodLoss, MultiSimilarityLoss
from vicinal.losses.neighborhood_variants import Variant
from vicinal.training.experiment import build_method
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, from_settings, settings

VARIANTS = get_args(Variant)


def train_records():
    """Classes 1, 3, 4, 7 and 8: others are held out."""
    rng = np.random.default_rng(0)
    source = FeatureArray(rng.normal(size=(30, 12)).astype(np.float32), [str(i) for i in range(30)])
    labels = np.repeat([1, 3, 4, 7, 8], 6)
    return Records("r", source, labels, tuple(map(str, range(9))), np.array(["train"] * 30))


def built(*overrides):
    recipe = apply(find_recipe("cub_features_danml"), ["classes=4", "per_class=3", "dim=8", *overrides])
    return build_method(recipe, train_records(), torch.device("cpu"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_start_alike_see_the_same_batches_and_learn(variant):
    danml, method = built(), built(f"variant={variant}")
    assert all(
        torch.equal(*pair) for pair in zip(danml.embedder.parameters(), method.embedder.parameters(), strict=True)
    )
    assert [danml.batches(epoch) for epoch in range(2)] == [method.batches(epoch) for epoch in range(2)]
    records, rows = train_records(), method.batches(0)[0]
    inputs = torch.stack([torch.from_numpy(records.source.read(row)) for row in rows])
    loss = method.loss(method.embedder.embed(inputs), torch.from_numpy(records.labels[rows]))
    loss.backward()
    assert loss.isfinite() and all(p.grad.abs().sum() > 0 for p in method.embedder.parameters() if p.ndim > 1)
    assert all(p.grad.abs().sum() > 0 for p in method.loss.parameters()), "proxies learn too"


def test_the_ablations_are_overrides():
    full, original = built().loss, built("variant=original").loss
    assert (full.lambda1, full.lambda2) == (0.55, pytest.approx(0.57)) and original.lambda1 is original.lambda2 is None
    changes = ["anml.outer=identity", "anml.sigma=0", "anml.epsilon=none"]
    bare = built(*changes).loss
    assert isinstance(bare, AdaptiveNeighborhoodLoss)
    assert (bare.outer, bare.lambda2, bare.epsilon) == ("identity", bare.lambda1, None)
    similarity = built("variant=multi_similarity", "anml.alpha=3", "anml.lambda1=0.6").loss
    assert isinstance(similarity, MultiSimilarityLoss) and (similarity.alpha, similarity.base) == (3, 0.6)


@pytest.mark.parametrize("name", ["cub_features_danml", "cub_danml"])
def test_settings_are_read_back(name):
    kind = find_recipe(name)
    recipe = apply(kind, ["variant=improved_lifted", "anml.radius=count", "anml.without_farthest=2"])
    assert from_settings(kind, settings(recipe)) == recipe
    with pytest.raises(ConfigError, match="improved_lifted"):
        apply(kind, ["variant=improved_lift"])
