"""Every contender learns, starts where its plain twin starts, and goes on from its saved state."""

from copy import deepcopy
from typing import get_args

import numpy as np
import pytest
import torch

from vicinal.data.loader import load
from vicinal.data.records import FeatureArray, Records
from vicinal.errors import ConfigError
from vicinal.methods.contender import Contender
from vicinal.methods.named_loss import LossName
from vicinal.training.experiment import build_method
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, from_settings, settings

SMALL = (
    *("dim=8", "epochs=2", "hdml.hidden=8", "method.classes=4", "method.per_class=3", "method.pairs=4"),
    *("method.triplets=3", "method.anchors=2"),
)
EPISODES = ("ala", "constant", "random", "mlp", "hdml", "hdml_ala", "plain")
ROWS = [
    *(f"method.loss={loss}" for loss in get_args(LossName)),
    *(f"method.name=hdml method.loss={loss}" for loss in ("batch_all", "multi_similarity", "danml")),
    *(
        f"method.name=loop method.loss={loss}"
        for loss in ("triplet", "hphn", "lifted_min", "multi_similarity", "danml")
    ),
    "method.name=expansion method.loss=danml",
    *(f"method.batches=pairs method.loss=n_pair method.name={name}" for name in ("plain", "hdml")),
    *(f"method.batches=triplets method.loss=triplet method.name={name}" for name in ("plain", "hdml")),
    *(f"method.batches=episodes method.loss=triplet method.name={name}" for name in EPISODES),
    "method.batches=episodes method.loss=margin method.name=ala",
    "method.batches=episodes method.loss=contrastive method.name=ala method.disjoint=false",
    *(f"method.loss=hierarchical method.name={name}" for name in ("htl", "htl_sampling", "htl_margin", "htl_hdml")),
]


@pytest.fixture
def train():
    """Classes 1, 3, ..., 23: others are held out."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1, 25, 2), 6)
    features = rng.normal(size=(25, 12))[labels] + 0.5 * rng.normal(size=(len(labels), 12))
    source = FeatureArray(features.astype(np.float32), [str(row) for row in range(len(labels))])
    return Records("r", source, labels, tuple(map(str, range(25))), np.array(["train"] * len(labels)))


def recipe_of(words):
    return apply(find_recipe("cub_features_methods"), [*SMALL, *words.split()])


@pytest.mark.parametrize("words", ROWS)
def test_a_contender_learns_and_goes_on_from_its_saved_state(words, train):
    recipe, cpu = recipe_of(words), torch.device("cpu")
    method, again = (build_method(r, train, cpu) for r in (recipe, from_settings(type(recipe), settings(recipe))))
    twin = build_method(recipe_of(f"{words} method.name=plain"), train, cpu)
    start = [parameter.clone() for parameter in method.embedder.parameters()]
    for ours, theirs in zip(start, twin.embedder.parameters(), strict=True):
        assert torch.equal(ours, theirs)

    def steps(one, epoch, first, last):
        plan = one.batches(epoch) if first == 0 else plans[epoch]
        plans[epoch] = plan
        batches = load(train, plan[first:last], recipe.transform, seed=0, epoch=epoch)
        return [{name: float(value) for name, value in one.step(batch).items()} for batch in batches]

    plans = {}
    steps(method, 0, 0, 1)
    steps(method, 1, 0, 1)  # the second epoch: HTL's margins are dynamic now
    torch.manual_seed(1)
    again.load_state_dict(deepcopy(method.state_dict()))  # an optimiser would share its tensors
    torch.manual_seed(1)
    went_on = steps(method, 1, 1, 2)
    moved = [not torch.equal(*pair) for pair in zip(start, method.embedder.parameters(), strict=True)]
    assert any(moved) and all(np.isfinite(list(went_on[0].values())))
    torch.manual_seed(1)
    assert steps(again, 1, 1, 2) == went_on


@pytest.mark.parametrize("words", [row for row in ROWS if "htl" not in row])
def test_a_contender_sees_the_batches_of_its_twin(words, train):
    method, twin = (
        build_method(recipe_of(w), train, torch.device("cpu")) for w in (words, f"{words} method.name=plain")
    )
    assert [list(map(list, method.batches(e))) for e in range(2)] == [
        list(map(list, twin.batches(e))) for e in range(2)
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "ala"}, "train on episodes"),
        ({"name": "loop", "batches": "episodes"}, "train on episodes"),
        ({"name": "htl"}, "loss=hierarchical"),
        ({"name": "loop", "batches": "pairs", "loss": "n_pair"}, "pairs out of batches of classes"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_built(settings, message):
    with pytest.raises(ConfigError, match=message):
        Contender(**settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("method.name=hdml method.loss=proxy_nca", "has none"),
        ("method.batches=episodes method.loss=danml", "episodes carry"),
        ("method.batches=episodes method.loss=margin method.name=hdml_ala", "HDML over triplet alone"),
    ],
)
def test_a_loss_that_a_method_cannot_use_is_refused(words, message, train):
    with pytest.raises(ConfigError, match=message):
        recipe_of(words).build(train)
