"""HTL as a method: when the tree is rebuilt, from what, and which margins it gives."""

import pytest
import torch
from tests.methods.build import ready, some_records, steps
from tests.reading import load

from vicinal.data.transforms import FeatureTransform
from vicinal.methods.htl import HTL
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.samplers import ClassTree


@pytest.fixture
def train():
    return some_records()


def make(train, **settings):
    optimizer = OptimizerConfig(learning_rate=3e-2)
    return ready(HTL(**settings), "hierarchical_triplet", train, optimizer=optimizer)


def test_the_first_epoch_samples_by_the_tree_with_one_margin_for_all(train):
    method = make(train)
    first, second = (steps(method, train, epoch, method.batches(epoch)) for epoch in range(2))
    margins = [f"margin/{name}" for name in ("least", "mean", "largest")]
    for scalars in first:
        assert [scalars[name] for name in margins] == pytest.approx([0.2] * 3)
    for scalars in second:
        least, mean, largest = (scalars[name] for name in margins)
        assert least < mean < largest


def test_the_tree_is_that_of_the_network_at_the_beginning_of_the_epoch(train):
    method = make(train)
    steps(method, train, 0, method.batches(0))
    before = method.tree
    found = method.embed_records()
    method.batches(1)
    assert not torch.equal(method.tree.means, before.means)
    torch.testing.assert_close(
        method.tree.means, ClassTree.build(found.vectors, found.labels).means
    )


def test_margins_are_beta_and_threshold_less_spread(train):
    method = make(train, beta=0.3, levels=5)
    method.batches(1)
    tree = method.tree
    labels = torch.tensor([1, 23, 7, 1])
    margins = method.loss.margins_of(labels)
    levels = tree.levels().long()
    places = (labels // 2).tolist()
    for row, anchor in enumerate(places):
        for column, negative in enumerate(places):
            expected = 0.3 + tree.thresholds[levels[anchor, negative]] - tree.spreads[anchor]
            assert margins[row, column] == pytest.approx(float(expected))


def test_active_triplets_are_those_that_cost_something_at_their_own_margins(train):
    method = make(train, beta=0.4)
    (batch,) = load(train, method.batches(1)[:1], FeatureTransform(), seed=0, epoch=1)
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
    found = method.diagnostics(method(batch))["active"]
    assert float(found) == pytest.approx(sum(costs) / len(costs))
