"""LoOp as a method: what a step learns, reports and keeps, and where it meets its plain twin."""

import copy

import pytest
import torch

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.exhibits import Tuples, from_json, to_json
from vicinal.losses import HPHNLoss, MultiSimilarityLoss, TripletLoss
from vicinal.methods.loop import LoOp, LoOpTraining
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.plain import PlainTraining
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.synthesis import EmbeddingExpansion, OptimalNegatives

LABELS = torch.arange(24) // 4


def embedder():
    torch.manual_seed(0)
    return Embedder(Identity(6), 5)


def sampler():
    return PKSampler(LABELS.tolist(), classes=3, per_class=4, seed=0)


def method(loss, wait=0, **more):
    steps = 20 * len(sampler())
    return LoOpTraining.from_config(embedder(), loss, sampler(), OptimizerConfig(**more), steps=steps, wait=wait)


def published(loss):
    return OptimalNegatives(loss, overlap="arcs")


@pytest.fixture
def batch(rng):
    rows = torch.arange(12)
    inputs = torch.nn.functional.one_hot(LABELS[:12], 6) + 0.3 * torch.randn(12, 6, generator=rng)
    return Batch(inputs, LABELS[:12], rows + 100, largest_class=4)


@pytest.mark.parametrize("loss", [TripletLoss(squared=False), HPHNLoss(), MultiSimilarityLoss()])
@pytest.mark.parametrize("kind", [OptimalNegatives, EmbeddingExpansion])
def test_steps_bring_the_loss_down(kind, loss, batch):
    trained = method(kind(loss), learning_rate=3e-2)
    first = trained.step(batch)
    for _ in range(20):
        last = trained.step(batch)
    assert last["loss"] < first["loss"] and all(value.isfinite() for value in last.values())
    assert {"active", "spread", "hardest_negative/sample", "hardest_negative/between"} <= last.keys()


def test_points_between_samples_are_harder_than_samples(batch):
    distances = method(published(HPHNLoss())).step(batch)
    assert distances["hardest_negative/between"] < distances["hardest_negative/sample"]
    similarities = method(published(MultiSimilarityLoss())).step(batch)
    assert similarities["hardest_negative/between"] > similarities["hardest_negative/sample"]


def test_the_reported_hardest_negatives_are_those_of_the_batch(batch):
    made = method(OptimalNegatives(HPHNLoss()))
    with torch.no_grad():
        rows, labels = made.embedder(batch.inputs), batch.labels
    among = torch.cdist(rows, rows).masked_fill(labels[:, None] == labels, torch.inf)
    reported = made.step(batch)
    torch.testing.assert_close(reported["hardest_negative/sample"], among.amin(dim=1).mean())


def test_where_all_of_a_class_agree_the_step_is_that_of_the_plain_twin():
    """Arcs are points then: same loss, same gradient, same weights after the step."""
    inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))[LABELS[:12]]
    batch, loss = Batch(inputs, LABELS[:12], torch.arange(12), largest_class=4), TripletLoss(0.8, squared=False)
    loop = method(published(loss))
    plain = PlainTraining.from_config(embedder(), loss, sampler(), OptimizerConfig(), steps=20 * len(sampler()))
    torch.testing.assert_close(loop.step(batch)["loss"], plain.step(batch)["loss"])
    for ours, theirs in zip(loop.embedder.parameters(), plain.embedder.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_until_it_begins_it_is_its_baseline(batch):
    loss = MultiSimilarityLoss()
    waiting, loop = method(published(loss), wait=2), method(published(loss))
    plain = PlainTraining.from_config(embedder(), loss, sampler(), OptimizerConfig(), steps=20 * len(sampler()))
    for _ in range(2):
        assert waiting.step(batch)["loss"] == plain.step(batch)["loss"]
    pairs = zip(waiting.embedder.parameters(), plain.embedder.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    loop.embedder.load_state_dict(plain.embedder.state_dict())
    assert waiting.step(batch)["loss"] == loop.step(batch)["loss"]
    with pytest.raises(ConfigError, match=r"wait is a number of steps, 0 or more, got -1"):
        LoOp(wait=-1)


@pytest.mark.parametrize("wait", [0, 2])
def test_goes_on_from_its_state(batch, wait):
    one, other = (method(OptimalNegatives(HPHNLoss()), wait) for _ in range(2))
    one.step(batch)
    one.step(batch)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert one.step(batch) == other.step(batch)
    assert all(torch.equal(a, b) for a, b in zip(one.embedder.parameters(), other.embedder.parameters(), strict=True))


def test_shows_pairs_of_different_classes_by_their_records(batch):
    made = method(OptimalNegatives(HPHNLoss()))
    assert made.exhibits() == ()
    made.step(batch)
    (shown,) = made.exhibits()
    assert isinstance(shown, Tuples) and from_json(to_json([shown])) == (shown,)
    assert 0 < len(shown.tuples) <= 6
    for found in shown.tuples:
        a, b, c, d = (int(LABELS[member.record - 100]) for member in found.members)
        assert a == b != c == d


def test_a_collapsed_batch_costs_the_margin(batch):
    assert method(OptimalNegatives(TripletLoss(0.7))).collapsed_loss(batch) == pytest.approx(0.7)
