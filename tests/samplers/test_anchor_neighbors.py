"""Neighborhoods of classes: who is in a batch, how often, and from what it follows."""

import numpy as np
import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.samplers import AnchorNeighborSampler, ClassTree

LABELS = np.random.default_rng(0).permutation(
    np.repeat(np.arange(12) * 10 - 7, [2, 3, 4, 5, 5, 6, 7, 8, 9, 4, 4, 4])
)


def tree_of(labels=LABELS, seed=0):
    """Classes on a quarter circle, in the order of their labels."""
    angle = torch.tensor(np.unique(labels, return_inverse=True)[1]) / 12 + seed
    return ClassTree.build(torch.stack([angle.cos(), angle.sin()], dim=1), torch.tensor(labels))


def sampler(tree=None, **more):
    made = AnchorNeighborSampler(
        LABELS, **{"anchors": 2, "neighborhood": 3, "per_class": 2, "seed": 5, **more}
    )
    made.tree = tree
    return made


@pytest.mark.parametrize("anchors", [1, 2, 4])
@pytest.mark.parametrize("neighborhood", [1, 2, 3])
def test_a_batch_has_as_many_different_classes_as_asked_for(anchors, neighborhood):
    made = sampler(tree_of(), anchors=anchors, neighborhood=neighborhood)
    for batch in made.epoch(0):
        pairs = LABELS[batch].reshape(-1, 2)  # class by class
        assert (pairs[:, 0] == pairs[:, 1]).all()
        assert len(set(pairs[:, 0])) == len(pairs) == anchors * neighborhood


def test_the_nearest_classes_of_each_anchor_are_there():
    tree = tree_of()
    made = sampler(tree)
    distances = tree.distances(torch.arange(12)).fill_diagonal_(torch.inf)
    for epoch in range(5):
        for batch in made.epoch(epoch):
            places = np.searchsorted(tree.classes.numpy(), LABELS[batch][::2])
            for anchor in places[:2]:
                assert set(distances[anchor].topk(2, largest=False).indices.tolist()) <= set(
                    places.tolist()
                )


def test_an_epoch_follows_from_the_tree_too():
    other = ClassTree.build(torch.randn(len(LABELS), 3), torch.tensor(LABELS))
    assert sampler(tree_of()).epoch(3) == sampler(tree_of()).epoch(3)
    assert sampler(tree_of()).epoch(3) != sampler(other).epoch(3)


def test_every_class_is_an_anchor_before_one_is_again():
    made = sampler(tree_of(), anchors=2, batches=6)
    anchors = [LABELS[row] for batch in made.epoch(0) for row in (batch[0], batch[2])]
    assert sorted(anchors) == np.unique(LABELS).tolist()


def test_classes_with_too_few_samples_are_nobodys_neighbors():
    made = sampler(tree_of(), per_class=4)
    small = {-7, 3}
    assert not small & {
        int(LABELS[row]) for epoch in range(5) for batch in made.epoch(epoch) for row in batch
    }


def test_errors_name_the_numbers():
    with pytest.raises(ConfigError, match="needs its sizes, or a batch_size"):
        sampler(neighborhood=0)
    part = ClassTree.build(torch.randn(4, 2), torch.tensor([-7, -7, 3, 3]))
    with pytest.raises(DataError, match="10 of them are not in the tree, class 13 first"):
        sampler(part).epoch(0)
