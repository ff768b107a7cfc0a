"""Every method over every loss: it trains from its settings and resumes from its state, or says why
not."""

from copy import deepcopy
from dataclasses import fields

import numpy as np
import pytest
import torch
from tests.apart import in_two
from tests.methods.build import OneBatch, parts_of, ready, some_records, steps

from vicinal.errors import ConfigError
from vicinal.losses import LOSSES, MultiSimilarityLoss, TripletLoss
from vicinal.methods import (
    ALA,
    HDML,
    HTL,
    METHODS,
    SEE,
    CrossBatchMemory,
    EmbeddingExpansion,
    LoOp,
    Plain,
    combination,
)
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.miners import Mined
from vicinal.parallel import part
from vicinal.samplers import SAMPLERS, EpisodeSampler, PKSampler

SMALL = {name: kind() for name, kind in METHODS.items() if name != "her"}
SMALL |= {"hdml": HDML(hidden=8, window=1), "cross_batch_memory": CrossBatchMemory(warmup=1)}
SMALL |= {"see": SEE(expansions=4)}  # fewer than the embedding has dimensions
MATRIX = [(method, loss) for method in SMALL for loss in LOSSES]
TRAINING = [pair for pair in MATRIX if combination(SMALL[pair[0]], pair[1]) is None]
QUICK = {
    "multi_similarity",
    "triplet",
    "n_pair",
    "hierarchical_triplet",
    "margin",
    "angular",
    "soft_triple",
}


@pytest.fixture(scope="module")
def train():
    return some_records()


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        pytest.param(*pair, marks=[] if pair[1] in QUICK else pytest.mark.slow, id="-".join(pair))
        for pair in TRAINING
    ],
)
def test_a_combination_trains_and_resumes(name, loss, train):
    method, again = (ready(SMALL[name], loss, train) for _ in range(2))
    start = [parameter.clone() for parameter in method.embedder.parameters()]
    assert all(torch.equal(*pair) for pair in zip(start, again.embedder.parameters(), strict=True))
    steps(method, train, 0, method.batches(0)[:1])
    plan = method.batches(1)  # the second epoch: HTL's margins are dynamic now
    steps(method, train, 1, plan[:1])
    # An optimizer would share its tensors.
    again.load_training_state(deepcopy(method.training_state()))
    went_on = steps(method, train, 1, plan[1:2])
    assert all(np.isfinite(list(went_on[0].values())))
    assert any(
        not torch.equal(*pair) for pair in zip(start, method.embedder.parameters(), strict=True)
    )
    assert steps(again, train, 1, plan[1:2]) == went_on
    assert {
        scalar.partition("/")[0] for scalar in went_on[0] if "/" in scalar
    } <= method.captions.keys()
    shares = [went_on[0][f"inseparable_share/{kind}"] for kind in ("similar", "dissimilar")]
    assert min(shares) >= 0 and sum(shares) <= 1 and "ANML" in method.captions["inseparable_share"]


def an_epoch(_=0):
    """What an epoch of each method leaves; of two processes each takes its rows of a batch."""
    train = some_records()
    found = {}
    # Adam would make a full step of a gradient that is 0 but for rounding, each process's own.
    descent = OptimizerConfig("sgd", learning_rate=0.1, momentum=0.0)
    for name, method in (SMALL | {"ala": ALA("paper", rate=30.0)}).items():
        built = ready(method, method.default_loss, train, optimizer=descent)
        built.batches(0)
        plan = [part(rows) for rows in built.batches(1)]
        losses = [line["loss"] for line in steps(built, train, 1, plan)]
        found[name] = {"losses": losses, "weights": built.embedder.state_dict()}
    return found


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path):
    alone = an_epoch()
    for found in in_two(an_epoch, tmp_path):
        torch.testing.assert_close(found, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "loss"), sorted(set(MATRIX) - set(TRAINING)), ids=lambda part: part
)
def test_a_combination_that_cannot_train_names_one_that_can(name, loss, train):
    reason = combination(SMALL[name], loss)
    assert any(word in reason for word in ("Use ", "Set "))
    with pytest.raises(ConfigError) as error:
        SMALL[name].build(parts_of(SMALL[name], loss, train))
    assert str(error.value) == reason


OF_COSINES = {"normalized_softmax", "proxy_anchor", "p2s_grad", "arcface", "cosface"}
OF_PROXIES = OF_COSINES | {"soft_triple", "sub_center_arcface", "proxy_nca", "improved_proxy_nca"}
OF_PAIRS = {"triplet", "batch_all_triplet", "batch_hard_triplet", "n_pair", "lifted_structure"}


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("metrix", {"multi_similarity", "contrastive", "proxy_anchor"}),
        ("idml", OF_COSINES | {"soft_triple", "sub_center_arcface"}),
        ("proxy_synthesis", OF_PROXIES | {"instance"}),
        ("see", OF_COSINES | {"proxy_nca", "improved_proxy_nca"}),
        ("gca_hng", OF_PAIRS | {"info_nce", "tuplet_margin"}),
    ],
)
def test_a_descendant_trains_the_losses_that_it_can(name, losses):
    assert {loss for method, loss in TRAINING if method == name} == losses


@pytest.mark.parametrize("name", SMALL)
def test_every_setting_is_documented(name):
    kind = METHODS[name]
    assert all(f"        {field.name}: " in kind.__doc__ for field in fields(kind))
    assert kind.default_loss in LOSSES and combination(kind(), kind.default_loss) is None


@pytest.mark.parametrize(
    ("method", "steps", "begins"),
    [
        (HDML(), 10**6, 3),  # an epoch
        (HDML(), 40, 2),  # a twentieth of the run
        (HDML(), 10, 1),
        (HDML("paper"), 100, 64),
        (HDML("authors"), 100, 64),
        (HDML(window=7), 100, 7),
        (LoOp(), 10**6, 3),
        (LoOp("paper"), 100, 0),
        (LoOp(wait=7), 100, 7),
        (CrossBatchMemory(), 100, 10),
        (Plain(), 100, 0),
        (ALA(), 100, 0),
        (HTL(), 100, 0),
    ],
)
def test_a_method_says_when_it_begins_and_does_so_early(method, steps, begins, train):
    assert ready(method, method.default_loss, train, steps=steps).acts_from == begins


def test_margins_alone_begin_in_the_second_epoch(train):
    built = ready(HTL(), "hierarchical_triplet", train, "classes")
    assert built.acts_from == len(built.sampler)


def test_hdml_is_its_loss_alone_until_it_says_that_it_begins(train):
    hdml = ready(HDML(hidden=8), "multi_similarity", train, steps=40)
    plan = hdml.batches(0)
    lines = steps(hdml, train, 0, plan)
    began = [line["hardness/lambda"] < 1 or line["hardness/w"] < 1 for line in lines]
    assert began == [number >= hdml.acts_from for number in range(len(plan))]


@pytest.mark.parametrize(
    ("method", "loss", "sampler", "reason"),
    [
        (LoOp(), MultiSimilarityLoss(), "episodes", "Set sampler=classes"),
        (LoOp("authors"), MultiSimilarityLoss(), "odd", "Set sampler.per_class=4"),
        (EmbeddingExpansion("paper"), TripletLoss(), "odd", "Set sampler.per_class=4"),
        (
            Plain(),
            TripletLoss(blocks=True),
            "classes",
            "Set loss.blocks=false, or sampler=triplets",
        ),
        (Plain(), TripletLoss(), "anchor_neighbors", "Set sampler=classes"),
        (Plain(), TripletLoss(reduction="none"), "classes", "Set loss.reduction=mean"),
        (HDML(), Mined(TripletLoss(), "hardest"), "classes", "got Mined"),
        (ALA(), TripletLoss(), "classes", "Set sampler=episodes"),
        (ALA(units="pairs"), TripletLoss(), "episodes", "Set method.units=triplets"),
        (
            HTL(),
            TripletLoss(),
            "anchor_neighbors",
            "Use hierarchical_triplet, or method.form=ours",
        ),
        (CrossBatchMemory(size=8), TripletLoss(), "classes", "Set method.size=96"),
    ],
)
def test_what_does_not_go_together_is_rejected_with_what_to_set(
    method, loss, sampler, reason, train
):
    if sampler == "odd":
        batches = PKSampler(train.labels, classes=4, per_class=3, seed=0)
    else:
        batches = SAMPLERS[sampler](train.labels, batch_size=24, seed=0)
    with pytest.raises(ConfigError, match=reason):
        method.check(loss, batches)


def test_a_sampler_of_the_users_own_is_not_checked_by_its_layout():
    LoOp().check(MultiSimilarityLoss(), OneBatch(2))
    with pytest.raises(ConfigError, match="got batches of OneBatch"):
        ALA().check(TripletLoss(), OneBatch(2))
    ALA().check(TripletLoss(), EpisodeSampler(np.repeat(np.arange(6), 2), seed=0))


def test_an_unknown_loss_is_rejected():
    with pytest.raises(ConfigError, match="did you mean 'triplet'"):
        combination(Plain(), "triplets")
