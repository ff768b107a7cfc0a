"""LoOp as a method: what a step learns, reports and keeps, and where it meets its baseline."""

import pytest
import torch
from tests.methods.build import build

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import HPHNLoss, MultiSimilarityLoss, TripletLoss
from vicinal.methods.loop import EmbeddingExpansion, LoOp
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.samplers import PKSampler

LABELS = torch.arange(24) // 4


def embedder():
    torch.manual_seed(0)
    return Embedder(Identity(6), 5)


def sampler():
    return PKSampler(LABELS.tolist(), classes=3, per_class=4, seed=0)


def ready(method, loss, **optimizer):
    return build(
        method, embedder(), loss, sampler(), OptimizerConfig(**optimizer), steps=20 * len(sampler())
    )


def published(loss, **settings):
    return ready(LoOp(form="paper", **settings), loss)


@pytest.fixture
def batch(rng):
    rows = torch.arange(12)
    inputs = torch.nn.functional.one_hot(LABELS[:12], 6) + 0.3 * torch.randn(12, 6, generator=rng)
    return Batch(inputs, LABELS[:12], rows + 100, largest_class=4)


def test_points_between_samples_are_harder_than_samples(batch):
    by_distance = published(HPHNLoss())
    by_similarity = published(MultiSimilarityLoss())
    distances = by_distance.diagnostics(by_distance(batch))
    assert distances["hardest_negative/between"] < distances["hardest_negative/sample"]
    similarities = by_similarity.diagnostics(by_similarity(batch))
    assert similarities["hardest_negative/between"] > similarities["hardest_negative/sample"]


def test_by_default_it_begins_early(batch):
    loss = MultiSimilarityLoss()
    assert published(loss).phase == "LoOp"
    loop = ready(LoOp(), loss)
    plain = ready(Plain(), loss)
    assert loop.acts_from == len(sampler())
    for _ in range(loop.acts_from):
        assert (
            loop.phase == "loss alone"
            and loop(batch).scalars["loss"] == plain(batch).scalars["loss"]
        )
    assert loop.phase == "LoOp" and loop(batch).scalars["loss"] != plain(batch).scalars["loss"]


@pytest.mark.parametrize("method", [LoOp("authors"), EmbeddingExpansion("paper")])
def test_consecutive_pairs_need_an_even_number_of_each_class(method):
    odd = PKSampler(LABELS.tolist(), classes=3, per_class=3, seed=0)
    with pytest.raises(ConfigError, match=r"got per_class=3\. Set sampler.per_class=4"):
        method.check(HPHNLoss(), odd)
    type(method)().check(HPHNLoss(), odd)


def test_as_published_the_mean_is_over_pairs_of_arcs():
    """1/|P|, from the first step on, where ours is over pairs of pairs and waits."""
    paper, ours = (ready(LoOp(form), TripletLoss()).loss for form in ("paper", "ours"))
    assert (paper.overlap, paper.anchors, paper.over_pairs) == ("arcs", "pairs", True)
    assert (ours.overlap, ours.anchors, ours.over_pairs) == ("samples", "samples", False)
