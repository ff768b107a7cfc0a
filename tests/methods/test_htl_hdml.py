"""HTL + HDML: margins of the tree are those of HTL, in the loss's state, and synthetic negatives meet the plain one."""

import copy

import numpy as np
import pytest
import torch

from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.resident import resident_if_it_fits
from vicinal.data.transforms import ImageTransform
from vicinal.exhibits import Dendrogram
from vicinal.losses import HierarchicalTripletLoss
from vicinal.methods import htl_hdml
from vicinal.methods.hierarchy import MarginTable
from vicinal.methods.htl import HTL, TrainingEmbeddings
from vicinal.methods.htl_hdml import HTLHDMLTraining, TreeTripletLoss
from vicinal.methods.method import ReadsRecords
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling.anchor_neighbours import AnchorNeighbourSampler
from vicinal.sampling.class_tree import ClassTree
from vicinal.synthesis import HDMLConfig

LABELS = np.repeat([2, 5, 6, 9], 4)
TRANSFORM = ImageTransform(size=8, channels=1)


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    pixels = np.clip(rng.integers(0, 255, (4, 8, 8)).repeat(4, axis=0) + rng.integers(-40, 40, (16, 8, 8)), 0, 255)
    source = ImageArray(pixels.astype(np.uint8), [str(row) for row in range(16)])
    return Records("r", source, LABELS, tuple("abcdefghij"), np.array(["train"] * 16))


@pytest.fixture
def make(records):
    def made(hierarchy=HTL()):  # noqa: B008 (frozen)
        torch.manual_seed(0)
        return HTLHDMLTraining.from_config(
            Embedder(SmallConvNet(1, (4,)), 4),
            AnchorNeighbourSampler(LABELS, anchors=2, neighborhood=2, per_class=3, seed=0),
            TrainingEmbeddings(records, TRANSFORM),
            OptimizerConfig(learning_rate=1e-2),
            HDMLConfig(hidden=8),
            hierarchy,
            margin=0.2,
            labels=LABELS,
            steps=3 * len(AnchorNeighbourSampler(LABELS, anchors=2, neighborhood=2, per_class=3, seed=0)),
        )

    return made


def steps(method, records, plan):
    for rows in plan:
        inputs = torch.from_numpy(records.source.pixels[rows])[:, None].float() / 255
        yield method.step(Batch(inputs, torch.from_numpy(LABELS[rows]), torch.tensor(rows), largest_class=3))


@pytest.fixture
def batch():
    rng = torch.Generator().manual_seed(0)
    return torch.randn(len(LABELS), 6, generator=rng, dtype=torch.float64), torch.from_numpy(LABELS)


def test_without_a_tree_it_is_the_hierarchical_loss_with_one_margin(batch):
    torch.testing.assert_close(TreeTripletLoss(LABELS, HTL())(*batch), HierarchicalTripletLoss()(*batch))


def test_with_a_tree_it_is_the_hierarchical_loss_with_its_margins(batch):
    hierarchy = HTL(beta=0.3, levels=5)
    tree = ClassTree.build(*batch, levels=5)
    loss = TreeTripletLoss(LABELS, hierarchy)
    loss.fill(tree)
    margins = hierarchy.beta + MarginTable.of(tree, torch.device("cpu"))(batch[1])
    torch.testing.assert_close(loss(*batch), HierarchicalTripletLoss().with_margins(*batch, margins))


def test_margins_are_part_of_the_state_and_synthetic_negatives_do_not_meet_them(batch):
    loss, again = TreeTripletLoss(LABELS, HTL()), TreeTripletLoss(LABELS, HTL())
    loss.fill(ClassTree.build(*batch))
    assert not torch.equal(loss(*batch), again(*batch))
    again.load_state_dict(loss.state_dict())
    assert torch.equal(loss(*batch), again(*batch))
    rows, _ = batch
    torch.testing.assert_close(loss.compare(rows), HierarchicalTripletLoss().compare(rows))


def test_a_table_filled_in_parts_is_the_same(batch, monkeypatch):
    tree, tables = ClassTree.build(*batch), []
    for rows in (htl_hdml.ROWS, 3):
        monkeypatch.setattr(htl_hdml, "ROWS", rows)
        tables.append(TreeTripletLoss(LABELS, HTL()))
        tables[-1].fill(tree)
    assert torch.equal(tables[0].margins, tables[1].margins) and len(tables[0].margins.unique()) > 2


# -- as a method ----------------------------------------------------------------------------------


def test_the_first_epoch_samples_by_the_tree_with_one_margin_for_all(make, records):
    method = make()
    loss, batches = method.tree_batches.loss, method.tree_batches
    plan = method.batches(0)
    assert plan == batches.sampler.epoch(0, batches.tree) and loss.margins.eq(0.2).all()
    first = batches.tree
    assert all(value.isfinite() for scalars in steps(method, records, plan) for value in scalars.values())
    method.batches(1)
    assert not torch.equal(batches.tree.means, first.means), "rebuilt from the network as it is now"
    expected = 0.1 + MarginTable.of(batches.tree, torch.device("cpu"))(torch.tensor([2, 5, 6, 9]))
    torch.testing.assert_close(loss.margins, expected)


def test_fixed_margins_stay(make):
    method = make(HTL(margins="fixed"))
    method.batches(1)
    assert method.tree_batches.loss.margins.eq(0.2).all()


def test_a_run_that_stops_in_mid_epoch_goes_on_with_the_margins_of_its_tree(make, records):
    method = make()
    list(steps(method, records, method.batches(0)))
    plan = [method.batches(1)[0]] * 2
    next(steps(method, records, plan))
    state = copy.deepcopy(method.state_dict())
    again = make()
    again.load_state_dict(state)  # and no one asks it for batches before the epoch is over
    ours, theirs = (next(steps(m, records, plan[1:])) for m in (method, again))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_is_told_how_the_training_part_is_read(make, records, monkeypatch):
    """Images on the device are taken from there, and whoever shows a bar is told of each one."""
    told, plans = [], []
    for resident in (None, resident_if_it_fits(records, TRANSFORM, torch.device("cpu"), resident="on")):
        method = make()
        assert isinstance(method, ReadsRecords)
        method.read_by(resident, workers=0, progress=told.append)
        plans.append(method.batches(0))
        monkeypatch.setattr("vicinal.evaluation.encoder.load_all", None)  # from now on nothing is read
    assert plans[0] == plans[1] and told == [len(records)] * 2


def test_shows_its_tree_beside_what_hdml_shows(make, records):
    method = make()
    assert method.exhibits() == ()
    list(steps(method, records, method.batches(0)))
    *scatter, tree = method.exhibits()
    assert isinstance(tree, Dendrogram) and sorted(leaf.name for leaf in tree.leaves) == list("cfgj")
    assert len(scatter) == len(method.hdml.exhibits()) > 0
