"""HER as a method: pairs through two streams, the orientation, each part on and off."""

import copy

import numpy as np
import pytest
import torch
from tests.apart import in_two
from tests.methods.build import DESCENT, build
from torch.testing import assert_close

from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.transforms import rotate
from vicinal.errors import ConfigError
from vicinal.losses import HardExemplarLoss, NormalizedSoftmaxLoss, orientation_errors
from vicinal.methods.her import HER, OrientationHead
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity, SmallResNet, TwoStreamEmbedder
from vicinal.samplers import CrossViewSampler, NPairSampler

CLASSES = 6
BASELINE = HER(regression=False)


@pytest.fixture
def records():
    """Of each class two queries and two gallery images of 16 pixels, the latter turned."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), 4)
    roles = np.tile([1, 1, 2, 2], CLASSES)
    prototypes = rng.integers(0, 255, (CLASSES, 4, 4)).repeat(4, axis=1).repeat(4, axis=2)
    pixels = np.clip(
        prototypes[labels] + rng.integers(-20, 20, (len(labels), 16, 16)), 0, 255
    ).astype(np.uint8)
    angles = np.where(roles == 2, 360 * rng.random(len(labels)), 0.0)
    source = ImageArray(pixels, [str(row) for row in range(len(labels))])
    columns = {"role": roles, "angle": angles}
    return Records("r", source, labels, tuple("abcdef"), np.array(["train"] * len(labels)), columns)


@pytest.fixture
def make(records):
    def made(settings=None, *, weighted=True, streams=2, rate=1e-3):
        torch.manual_seed(0)
        query = Embedder(SmallResNet(1, (4, 8), attention="fcam"), 5)
        sampler = CrossViewSampler(records.labels, classes=4, seed=0, roles=records.columns["role"])
        return build(
            settings or HER(),
            query if streams == 1 else TwoStreamEmbedder(query, copy.deepcopy(query)),
            HardExemplarLoss(weighted=weighted),
            sampler,
            OptimizerConfig(learning_rate=rate),
            train=records,
            steps=5 * len(sampler),
            seed=7,
        )

    return made


def batch_of(records, rows, **more):
    inputs = (
        torch.from_numpy(np.stack([np.asarray(records.source.read(row)) for row in rows]))[
            :, None
        ].float()
        / 255
    )
    labels = torch.from_numpy(records.labels[np.asarray(rows)])
    extras = {
        name: torch.from_numpy(column[np.asarray(rows)]) for name, column in records.columns.items()
    }
    extras["angle"] = extras["angle"].float()
    return Batch(inputs, labels, torch.tensor(rows), extras, largest_class=2, **more)


def train(method, records, epochs):
    return [
        [method(batch_of(records, rows)).scalars for rows in method.batches(epoch)]
        for epoch in range(epochs)
    ]


def test_a_step_is_the_two_terms_of_queries_and_gallery_through_their_streams(make, records):
    method = make(HER(lambda1=0.7, lambda2=0.3, turning=False))
    with torch.no_grad():  # streams that differ, and not only by their names
        method.embedder.gallery.head.bias += 1.0
    embedder, head, loss = copy.deepcopy((method.embedder, method.orientation_head, method.loss))
    batch = batch_of(records, method.batches(0)[0])
    queries = embedder.query.embed(embedder.query.features(batch.inputs[0::2]))
    gallery = embedder.gallery.embed(embedder.gallery.features(batch.inputs[1::2]))
    angles = torch.deg2rad(batch.extras["angle"][1::2] - batch.extras["angle"][0::2])
    errors = orientation_errors(head(queries, gallery), angles)
    parts = loss.with_orientation(queries, gallery, batch.labels[0::2], errors)
    found = method(batch).scalars
    assert_close(found["loss"], 0.7 * parts.match + 0.3 * parts.orientation)
    assert_close(found["weight/mean"], parts.weight)


# -- each part on and off -------------------------------------------------------------------------


def test_without_head_and_weights_it_is_the_soft_margin_loss_on_the_same_pictures(make, records):
    method = make(BASELINE, weighted=False)
    rows = method.batches(0)[0]
    batch = batch_of(records, rows)
    by = method.prepare(batch).extras["by"]
    embedder = copy.deepcopy(method.embedder)
    queries = embedder.query(batch.inputs[0::2])
    gallery = embedder.gallery(rotate(batch.inputs[1::2], by))
    distances = 25 * torch.cdist(queries, gallery).square()
    gaps = distances - distances.diagonal()[:, None]
    expected = torch.log1p(torch.exp(-gaps[~torch.eye(4, dtype=torch.bool)])).mean()
    found = method(batch).scalars
    assert_close(found["loss"], expected, rtol=1e-4, atol=1e-5)
    assert found["weight/mean"] == 1 and "orientation/degrees" not in found


def test_one_stream_serves_both(make, records):
    method = make(streams=1)
    assert not isinstance(method.embedder, TwoStreamEmbedder)
    assert all(value.isfinite() for s in train(method, records, 1)[0] for value in s.values())


def test_only_its_own_loss_and_pairs_of_views_are_accepted(records):
    method = HER()
    assert method.sampler_for(HardExemplarLoss) == "cross_view"
    with pytest.raises(ConfigError, match="Use hard_exemplar"):
        method.check(NormalizedSoftmaxLoss(2, 2), None)
    with pytest.raises(ConfigError, match="Set sampler=cross_view"):
        method.check(HardExemplarLoss(), NPairSampler(records.labels, classes=2, seed=0))


# -- going on, and what it says -------------------------------------------------------------------


def test_a_run_that_stops_in_mid_epoch_turns_its_pictures_as_it_would_have(make, records):
    method = make()
    train(method, records, 2)
    plan = method.batches(2)
    method(batch_of(records, plan[0]))
    state = copy.deepcopy(method.training_state())
    again = make()
    again.load_training_state(state)  # and no one asks it for batches before the epoch is over
    ours, theirs = (m(batch_of(records, plan[1])).scalars for m in (method, again))
    assert ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


# -- several processes ----------------------------------------------------------------------------


def paired_method():
    """Of vectors, without batch norm, which sees only its process's rows on a CPU."""
    torch.manual_seed(0)
    embedder = TwoStreamEmbedder(Embedder(Identity(5), 3), Embedder(Identity(5), 3))
    settings = HER(turning=False)
    return build(settings, embedder, HardExemplarLoss(), None, DESCENT, labels=range(4)).double()


def paired_batch(pairs):
    rng = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, 5, generator=rng, dtype=torch.float64)
    extras = {
        "role": torch.tensor([1, 2] * 4),
        "angle": 90 * torch.rand(8, generator=rng, dtype=torch.float64),
    }
    rows = slice(2 * pairs.start, 2 * pairs.stop)
    extras = {name: column[rows] for name, column in extras.items()}
    return Batch(
        inputs[rows], torch.arange(4).repeat_interleave(2)[rows], torch.arange(8)[rows], extras
    )


@pytest.mark.slow
def test_two_processes_take_the_step_of_one(tmp_path):
    alone = paired_step(range(4))
    for found in in_two(half_a_step, tmp_path):
        assert_close(found, {name: alone[name] for name in found})


def half_a_step(number):
    return paired_step(range(2 * number, 2 * number + 2))


def paired_step(pairs):
    method = paired_method()
    batch = paired_batch(pairs)
    scalars = dict(method(batch).scalars)
    return {"scalars": scalars, "weights": method.state_dict()}


def test_the_orientation_head_has_the_authors_layers_and_looks_at_both_views(rng):
    head = OrientationHead(5)
    queries, gallery = torch.randn(2, 7, 5, generator=rng)
    inner = head.first(torch.cat([queries, gallery], dim=1).clamp(min=0)).clamp(min=0)
    out = head.second(inner)
    assert (head.first.in_features, head.first.out_features, head.second.out_features) == (
        10,
        100,
        2,
    )
    assert_close(head(queries, gallery), out / out.norm(dim=1, keepdim=True))
