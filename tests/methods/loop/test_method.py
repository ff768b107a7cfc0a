"""LoOp as a method: what a step learns and reports, and where it meets its baseline."""

import pytest
from tests.methods.build import ready, some_records, steps

from vicinal.losses import TripletLoss
from vicinal.methods import LoOp, Plain
from vicinal.samplers import PKSampler


@pytest.fixture
def train():
    return some_records()


@pytest.mark.parametrize(("loss", "sign"), [("hphn", 1), ("multi_similarity", -1)])
def test_points_between_samples_are_harder_than_samples(loss, sign, train):
    method = ready(LoOp("paper"), loss, train)
    (line,) = steps(method, train, 0, method.batches(0)[:1])
    between, sample = (line[f"hardest_negative/{name}"] for name in ("between", "sample"))
    assert sign * between < sign * sample


def test_by_default_it_begins_early_and_as_published_at_once(train):
    loop, plain, paper = (
        ready(method, "multi_similarity", train, steps=10**6)
        for method in (LoOp(), Plain(), LoOp("paper"))
    )
    plan = loop.batches(0) + loop.batches(1)[:1]
    ours, alone, published = (
        [line["loss"] for line in steps(method, train, 0, plan)] for method in (loop, plain, paper)
    )
    assert loop.acts_from == 3
    assert ours[:3] == alone[:3] and ours[3] != alone[3] and published[0] != alone[0]


def test_as_published_the_mean_is_over_pairs_of_arcs(train):
    """1/|P|, from the first step on, where ours is over pairs of pairs and waits."""
    paper, ours = (ready(LoOp(form), "triplet", train).loss for form in ("paper", "ours"))
    assert (paper.overlap, paper.anchors, paper.over_pairs) == ("arcs", "pairs", True)
    assert (ours.overlap, ours.anchors, ours.over_pairs) == ("samples", "samples", False)


def test_pairs_that_are_not_consecutive_may_be_of_an_odd_number(train):
    LoOp().check(TripletLoss(), PKSampler(train.labels, classes=4, per_class=3, seed=0))
