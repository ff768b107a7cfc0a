"""HTL + HDML: margins of the tree are those of HTL, in the loss's state, and synthetic negatives meet the plain one."""

import numpy as np
import pytest
import torch

from vicinal.losses import HierarchicalTripletLoss
from vicinal.methods.hierarchy import Hierarchy, MarginTable
from vicinal.methods.htl_hdml import TreeTripletLoss
from vicinal.sampling.class_tree import ClassTree

LABELS = np.repeat([2, 5, 6, 9], 4)


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(0)
    return torch.randn(len(LABELS), 6, generator=rng, dtype=torch.float64), torch.from_numpy(LABELS)


def test_without_a_tree_it_is_the_hierarchical_loss_with_one_margin(batch):
    torch.testing.assert_close(TreeTripletLoss(LABELS, Hierarchy())(*batch), HierarchicalTripletLoss()(*batch))


def test_with_a_tree_it_is_the_hierarchical_loss_with_its_margins(batch):
    hierarchy = Hierarchy(beta=0.3, levels=5)
    tree = ClassTree.build(*batch, levels=5)
    loss = TreeTripletLoss(LABELS, hierarchy)
    loss.fill(tree)
    margins = hierarchy.beta + MarginTable.of(tree, torch.device("cpu"))(batch[1])
    torch.testing.assert_close(loss(*batch), HierarchicalTripletLoss().with_margins(*batch, margins))


def test_margins_are_part_of_the_state_and_synthetic_negatives_do_not_meet_them(batch):
    loss, again = TreeTripletLoss(LABELS, Hierarchy()), TreeTripletLoss(LABELS, Hierarchy())
    loss.fill(ClassTree.build(*batch))
    assert not torch.equal(loss(*batch), again(*batch))
    again.load_state_dict(loss.state_dict())
    assert torch.equal(loss(*batch), again(*batch))
    rows, _ = batch
    torch.testing.assert_close(loss.compare(rows), HierarchicalTripletLoss().compare(rows))
