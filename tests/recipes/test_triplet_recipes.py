"""Recipes of HTL, LoOp and HER on features are rows of the tables: what their pages tell is what a user gets."""

import numpy as np
import pytest
import torch

from vicinal.bench.catalogue import find_table
from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.training.experiment import build_method
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe

ROWS = {
    "cub_features_htl": "HTL",
    "cub_features_htl variant=sampling": "HTL's classes, one margin",
    "cub_features_htl variant=margin": "random classes, HTL's margins",
    "cub_features_htl variant=plain": "random classes, one margin",
    "cub_features_loop": "triplet of classes + LoOp",
    "cub_features_loop variant=plain": "triplet of classes",
    "cub_features_loop loss=hphn": "HPHN + LoOp",
    "cub_features_loop loss=hphn variant=plain": "HPHN",
    "cub_features_loop loss=hphn variant=expansion": "HPHN + Embedding Expansion",
    "cub_features_loop loss=lifted": "lifted, min form + LoOp",
    "cub_features_loop loss=multi_similarity optimisation.learning_rate=1e-4": "multi-similarity + LoOp",
    "cub_features_her": "soft-margin triplet + HER weights",
    "cub_features_her variant=plain": "soft-margin triplet",
}
READ_BY_ALL = ("data", "transform", "start", "seed", "epochs", "validation", "evaluate_every")


def train_records():
    """As many classes as a batch of the tables has, and some more."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 6)
    features = rng.normal(size=(30, 8))[labels] + rng.normal(size=(len(labels), 8))
    source = FeatureArray(features.astype(np.float32), [str(row) for row in range(len(labels))])
    return Records("r", source, labels, tuple(map(str, range(30))), np.array(["train"] * len(labels)))


def losses(method, records):
    """Of the first step of two epochs: the second has HTL's margins."""
    found = []
    for epoch in range(2):
        rows = method.batches(epoch)[0]
        inputs = torch.from_numpy(np.stack([records.source.read(row) for row in rows]))
        batch = Batch(inputs, torch.from_numpy(records.labels[rows]), torch.tensor(rows), largest_class=5)
        found.append(method.step(batch)["loss"])
    return torch.stack(found)


@pytest.mark.parametrize("words", ROWS)
def test_a_recipe_of_one_paper_is_its_row_in_the_table(words):
    name, *overrides = words.split()
    row = next(row for row in find_table("survey-cub_features").rows if row.name == ROWS[words])
    ours, theirs = apply(find_recipe(name), overrides), apply(find_recipe(row.recipe), list(row.overrides))
    assert [getattr(ours, key) for key in READ_BY_ALL] == [getattr(theirs, key) for key in READ_BY_ALL]
    records = train_records()
    methods = [build_method(recipe, records, torch.device("cpu")) for recipe in (ours, theirs)]
    assert methods[0].batches(0) == methods[1].batches(0)
    torch.testing.assert_close(*(losses(method, records) for method in methods), rtol=0, atol=0)
    torch.testing.assert_close(*(method.embedder.state_dict() for method in methods), rtol=0, atol=0)
