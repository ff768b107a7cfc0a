"""HTL as a method: when the tree is rebuilt, from what, and which margins it gives."""

import functools

import numpy as np
import pytest
import torch
from tests.methods.build import build

from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.data.transforms import FeatureTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.losses import HierarchicalTripletLoss
from vicinal.methods.htl import HTL
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import AnchorNeighborSampler, ClassTree

CLASSES = 8
PER_CLASS = 5


def some_records():
    rng = np.random.default_rng(0)
    # As after a hold-out: labels do not start at 0.
    labels = np.repeat(np.arange(CLASSES) + 2, PER_CLASS)
    features = rng.normal(size=(CLASSES, 6))[labels - 2] + 0.4 * rng.normal(size=(len(labels), 6))
    source = FeatureArray(features.astype(np.float32), [str(i) for i in range(len(labels))])
    return Records("r", source, labels, tuple("abcdefghij"), np.array(["train"] * len(labels)))


@pytest.fixture
def records():
    return some_records()


def planning(method, records):
    """Give the method the embeddings of the records, as the trainer does."""
    method.embed_records = lambda: embedded(method, records)
    return method


def embedded(method, records):
    return Encoder(method.embedder, FeatureTransform(), torch.device("cpu")).embed(records)


def method_of(records, settings=None, sampler=None, **optimizer):
    torch.manual_seed(0)
    sampler = sampler or AnchorNeighborSampler(
        records.labels, anchors=2, neighborhood=2, per_class=3, seed=0
    )
    method = build(
        settings or HTL(),
        Embedder(Identity(6), 4),
        HierarchicalTripletLoss(),
        sampler,
        OptimizerConfig(**optimizer),
        train=records,
        steps=5 * len(sampler),
    )
    return planning(method, records)


@pytest.fixture
def make(records):
    return functools.partial(method_of, records)


def batch_of(records, rows):
    inputs = torch.from_numpy(np.stack([records.source.read(row) for row in rows]))
    labels = torch.from_numpy(records.labels[np.asarray(rows)])
    return Batch(inputs, labels, torch.tensor(rows), largest_class=3)


def described(method, batch):
    """Take a step; return its scalars and what describes its batch."""
    result = method(batch)
    return {**result.scalars, **method.diagnostics(result)}


def train(method, records, epochs):
    return [
        [described(method, batch_of(records, rows)) for rows in method.batches(epoch)]
        for epoch in range(epochs)
    ]


def test_the_first_epoch_samples_by_the_tree_with_one_margin_for_all(make, records):
    method = make()
    first, second = train(method, records, 2)
    for scalars in first:
        assert all(
            scalars[f"margin/{name}"] == pytest.approx(0.2) for name in ("least", "mean", "largest")
        )
    for scalars in second:
        assert scalars["margin/least"] < scalars["margin/mean"] < scalars["margin/largest"]


def test_the_tree_is_that_of_the_network_at_the_beginning_of_the_epoch(make, records):
    method = make(learning_rate=3e-2)
    train(method, records, 1)
    before = method.tree
    found = embedded(method, records)
    method.batches(1)
    assert not torch.equal(method.tree.means, before.means)
    torch.testing.assert_close(
        method.tree.means, ClassTree.build(found.vectors, found.labels).means
    )


def test_margins_are_beta_and_threshold_less_spread(make, records):
    method = make(HTL(beta=0.3, levels=5))
    method.batches(1)
    tree = method.tree
    labels = torch.tensor([2, 9, 4, 2])
    margins = method.loss.margins_of(labels)
    levels = tree.levels().long()
    for row, anchor in enumerate(labels.tolist()):
        for column, negative in enumerate(labels.tolist()):
            expected = (
                0.3 + tree.thresholds[levels[anchor - 2, negative - 2]] - tree.spreads[anchor - 2]
            )
            assert margins[row, column] == pytest.approx(float(expected))


def test_active_triplets_are_those_that_cost_something_at_their_own_margins(make, records):
    method = make(HTL(beta=0.4))
    batch = batch_of(records, method.batches(1)[0])
    with torch.no_grad():
        rows = method.embedder(batch.inputs)
        margins = method.loss.margins_of(batch.labels)
    apart = torch.cdist(rows, rows).square()
    n = range(len(rows))
    costs = [
        bool(apart[a, p] - apart[a, k] + margins[a, k] > 0)
        for a in n
        for p in n
        for k in n
        if a != p and batch.labels[a] == batch.labels[p] != batch.labels[k]
    ]
    assert 0 < sum(costs) < len(costs)
    assert float(described(method, batch)["active"]) == pytest.approx(sum(costs) / len(costs))
