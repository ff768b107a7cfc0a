"""HTL + HDML: real negatives meet the margins of the tree, synthetic ones that of the loss; a
stopped run goes on."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.methods.build import build

from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.resident import resident_if_it_fits
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError
from vicinal.figures import Dendrogram
from vicinal.losses import HierarchicalTripletLoss, TripletLoss
from vicinal.methods.hdml import HDML
from vicinal.methods.htl import HTL, HTLHDML
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, SmallConvNet
from vicinal.samplers.anchor_neighbors import AnchorNeighborSampler

LABELS = np.repeat([2, 5, 6, 9], 4)
CLASSES = torch.tensor([2, 5, 6, 9])
TRANSFORM = ImageTransform(size=8, channels=1)


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    pixels = np.clip(
        rng.integers(0, 255, (4, 8, 8)).repeat(4, axis=0) + rng.integers(-40, 40, (16, 8, 8)),
        0,
        255,
    )
    source = ImageArray(pixels.astype(np.uint8), [str(row) for row in range(16)])
    return Records("r", source, LABELS, tuple("abcdefghij"), np.array(["train"] * 16))


@pytest.fixture
def make(records):
    def made(**htl):
        torch.manual_seed(0)
        sampler = AnchorNeighborSampler(LABELS, anchors=2, neighborhood=2, per_class=3, seed=0)
        return build(
            HTLHDML(HDML(hidden=8), HTL(**htl)),
            Embedder(SmallConvNet(1, (4,)), 4),
            HierarchicalTripletLoss(0.2),
            sampler,
            OptimizerConfig(learning_rate=1e-2),
            train=records,
            preprocessing=TRANSFORM,
            steps=3 * len(sampler),
        )

    return made


def batch_of(records, rows):
    inputs = torch.from_numpy(records.source.pixels[rows])[:, None].float() / 255
    return Batch(inputs, torch.from_numpy(LABELS[rows]), torch.tensor(rows), largest_class=3)


def steps(method, records, plan):
    for rows in plan:
        yield method(batch_of(records, rows))


def margins_by_hand(tree, beta=0.1):
    """α_z = β + d_H(y_a, y_n) - S_{y_a} of each two classes, in the order of the tree's."""
    return beta + tree.thresholds[tree.levels().long()] - tree.spreads[:, None]


def test_the_first_epoch_samples_by_the_tree_with_one_margin_for_all(make, records):
    method = make()
    plan, first = method.batches(0), method.htl.tree
    assert plan == method.sampler.epoch(0, first) and method.loss.margins_of(CLASSES).eq(0.2).all()
    for result in steps(method, records, plan):
        described = {**result.scalars, **method.diagnostics(result, 3)}
        assert all(value.isfinite() for value in described.values())
    groups = {name.partition("/")[0] if "/" in name else "loss" for name in described} - {
        "active",
        "spread",
    }
    assert groups == method.captions.keys()
    method.batches(1)
    tree = method.htl.tree
    assert not torch.equal(tree.means, first.means), "rebuilt from the network as it is now"
    torch.testing.assert_close(method.loss.margins_of(CLASSES), margins_by_hand(tree))
    assert len(method.loss.margins_of(CLASSES).unique()) > 2


def test_real_negatives_meet_the_margins_of_the_tree_and_synthetic_ones_that_of_the_loss(
    make, records
):
    method = make(beta=0.3, levels=5)
    method.batches(1)
    labels, plain = torch.from_numpy(LABELS), HierarchicalTripletLoss(0.2)
    embeddings = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    places = torch.searchsorted(CLASSES, labels)
    margins = margins_by_hand(method.htl.tree, 0.3)[places[:, None], places]
    real, plain = (loss.comparisons(embeddings, labels) for loss in (method.loss, plain))
    torch.testing.assert_close(real.positive, plain.positive)
    torch.testing.assert_close(real.negative, plain.negative + 0.2 - margins)
    interpolated = HDML(generate=False, real_share=0.5)
    interpolated.share(method)
    interpolated.setup_generator(SimpleNamespace(train=records))
    found = interpolated.synthesis(embeddings, labels, torch.tensor(1.0), lambda z: z).comparisons
    torch.testing.assert_close(found.negative, plain.negative)


def test_fixed_margins_stay(make):
    method = make(margins="fixed")
    method.batches(1)
    assert method.loss.margins_of(CLASSES).eq(0.2).all()


def test_a_run_that_stops_in_mid_epoch_goes_on_with_the_margins_of_its_tree(make, records):
    method = make()
    list(steps(method, records, method.batches(0)))
    plan = [method.batches(1)[0]] * 2
    next(steps(method, records, plan))
    state = copy.deepcopy(method.training_state())
    again = make()
    again.load_training_state(state)  # and no one asks it for batches before the epoch is over
    ours, theirs = (next(steps(m, records, plan[1:])).scalars for m in (method, again))
    assert ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )
    for mine, other in zip(method.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_is_told_how_the_training_part_is_read(make, records, monkeypatch):
    """Images on the device are taken from there, and whoever shows a bar is told of each one."""
    told, plans = [], []
    for resident in (
        None,
        resident_if_it_fits(records, TRANSFORM, torch.device("cpu"), resident="on"),
    ):
        method = make()
        assert method.reads_records
        method.read_by(resident, workers=0, progress=told.append)
        plans.append(method.batches(0))
        monkeypatch.setattr(
            "vicinal.evaluation.encoder.load_all", None
        )  # from now on nothing is read
    assert plans[0] == plans[1] and told == [len(records)] * 2


def test_shows_its_tree_beside_what_hdml_shows(make, records):
    method = make()
    plan = method.batches(0)
    list(steps(method, records, plan))
    last = batch_of(records, plan[-1])
    *scatter, tree = method.figures(last)
    assert isinstance(tree, Dendrogram) and sorted(leaf.name for leaf in tree.leaves) == list(
        "cfgj"
    )
    assert len(scatter) == len(method.hdml.figures(last)) > 0


def test_what_leaves_the_tree_unused_is_rejected(make):
    with pytest.raises(ConfigError, match=r"Set method.htl.sampling=true"):
        make(sampling=False)
    with pytest.raises(ConfigError, match=r"TripletLoss takes none. Set loss=hierarchical_triplet"):
        HTLHDML().check(TripletLoss(), None)
