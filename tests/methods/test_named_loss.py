"""The losses of the tables: each name with its own numbers, each batch with what it can carry."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.losses import Loss
from vicinal.losses.neighborhood_variants import Variant
from vicinal.methods.contender import Contender
from vicinal.methods.named_loss import LossName, build_loss
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe

LABELS = np.repeat([1, 3, 4, 8], 3)  # others are held out
RECIPE = apply(find_recipe("glyphs_methods"), [])
NUMBERS = {"margin": 0.31, "contrastive_margin": 0.7, "boundary": 1.1, "temperature": 0.07}
WITH_MARGIN = ("triplet", "batch_all", "semi_hard", "batch_hard", "hphn", "lifted_min", "hierarchical")
WITH_PROXIES = ("normalized_softmax", "proxy_nca", "improved_proxy_nca", "proxy_anchor", "soft_triple")


def loss_of(name, batches="classes", recipe=RECIPE):
    return build_loss(Contender(loss=name, batches=batches, **NUMBERS), LABELS, 8, recipe)


@pytest.mark.parametrize("name", get_args(LossName))
def test_every_name_of_the_tables_has_a_loss(name):
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(len(LABELS), 8, generator=generator)
    value = loss_of(name)(embeddings, torch.as_tensor(LABELS))
    assert value.isfinite() and value > 0


def test_names_of_one_loss_are_named_once():
    names = get_args(LossName)
    assert len(names) == len(set(names)) and {*get_args(Variant)} < {*names}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        *((name, {"margin": 0.31}) for name in WITH_MARGIN),
        ("margin", {"margin": 0.31, "beta": 1.1}),
        ("contrastive", {"margin": 0.7}),
        ("normalized_softmax", {"temperature": 0.07}),
        ("soft_margin", {"weighted": False}),
        ("hard_exemplar", {"weighted": True}),
    ],
)
def test_a_loss_has_the_numbers_of_its_kind(name, kept):
    loss = loss_of(name)
    assert {key: getattr(loss, key) for key in kept} == kept


def test_the_numbers_of_anml_are_those_of_its_group():
    recipe = replace(RECIPE, anml=replace(RECIPE.anml, alpha=3.0))
    assert [loss_of(name, recipe=recipe).alpha for name in ("danml", "multi_similarity")] == [3.0, 3.0]


def test_triplet_loss_takes_the_form_of_its_batches():
    plain, blocks = loss_of("triplet"), loss_of("triplet", "episodes")
    assert (plain.squared, plain.blocks) == (False, False) and (blocks.squared, blocks.blocks) == (True, True)


@pytest.mark.parametrize(("name", "batches"), [("triplet", "triplets"), ("n_pair", "pairs")])
def test_pairs_and_triplets_carry_the_loss_of_their_papers_alone(name, batches):
    assert isinstance(loss_of(name, batches), Loss)
    for other in {*get_args(LossName)} - {name}:
        with pytest.raises(ConfigError, match=f"batches={batches} carry loss={name}, but {other} came"):
            loss_of(other, batches)


@pytest.mark.parametrize("name", WITH_PROXIES)
def test_proxies_stand_for_the_training_classes_and_follow_the_seed(name):
    once, again, other = (
        torch.cat([part.flatten() for part in loss_of(name, recipe=recipe).parameters()])
        for recipe in (RECIPE, RECIPE, replace(RECIPE, seed=1))
    )
    assert torch.equal(once, again) and not torch.equal(once, other)
    assert once.numel() % (4 * 8) == 0


def test_a_misspelt_name_is_told_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'proxy_anchor'"):
        apply(type(RECIPE), ["method.loss=proxy_ancor"])
