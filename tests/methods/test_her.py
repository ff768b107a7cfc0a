"""HER as a method: pairs through two streams, the orientation, each part on and off, and a classifier beside them."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from vicinal.methods.paired_views import turns

from vicinal.data.augmentation import rotate
from vicinal.data.records import Batch, ImageArray, Records
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError
from vicinal.exhibits import from_json, to_json
from vicinal.losses import HardExemplarLoss, NormalizedSoftmaxLoss, orientation_errors
from vicinal.methods.her import HER, HERTraining
from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity, OrientationHead, SmallResNet, TwoStreamEmbedder
from vicinal.sampling import CrossViewSampler, NPairSampler

CLASSES = 6


@pytest.fixture
def records():
    """Of each class two queries and two gallery images of 16 pixels, the latter turned."""
    rng = np.random.default_rng(0)
    labels, roles = np.repeat(np.arange(CLASSES), 4), np.tile([1, 1, 2, 2], CLASSES)
    prototypes = rng.integers(0, 255, (CLASSES, 4, 4)).repeat(4, axis=1).repeat(4, axis=2)
    pixels = np.clip(prototypes[labels] + rng.integers(-20, 20, (len(labels), 16, 16)), 0, 255).astype(np.uint8)
    angles = np.where(roles == 2, 360 * rng.random(len(labels)), 0.0)
    source = ImageArray(pixels, [str(row) for row in range(len(labels))])
    columns = {"role": roles, "angle": angles}
    return Records("r", source, labels, tuple("abcdef"), np.array(["train"] * len(labels)), columns)


@pytest.fixture
def make(records):
    def made(orientation=HER(), *, head=True, weighted=True, streams=2, rate=1e-3, classified=False):  # noqa: B008 (frozen)
        torch.manual_seed(0)
        query = Embedder(SmallResNet(1, (4, 8), attention="fcam"), 5)
        return HERTraining.from_config(
            query if streams == 1 else TwoStreamEmbedder(query, copy.deepcopy(query)),
            HardExemplarLoss(weighted=weighted),
            CrossViewSampler(records.labels, classes=4, seed=0, roles=records.columns["role"]),
            OptimizerConfig(learning_rate=rate),
            orientation,
            head=OrientationHead(5, 10) if head else None,
            classifier=NormalizedSoftmaxLoss(CLASSES, 5) if classified else None,
            steps=5 * len(CrossViewSampler(records.labels, classes=4, seed=0, roles=records.columns["role"])),
            seed=7,
        )

    return made


def batch_of(records, rows, **more):
    inputs = torch.from_numpy(np.stack([np.asarray(records.source.read(row)) for row in rows]))[:, None].float() / 255
    labels = torch.from_numpy(records.labels[np.asarray(rows)])
    extras = {name: torch.from_numpy(column[np.asarray(rows)]) for name, column in records.columns.items()}
    extras["angle"] = extras["angle"].float()
    return Batch(inputs, labels, torch.tensor(rows), extras, largest_class=2, **more)


def train(method, records, epochs):
    return [[method.step(batch_of(records, rows)) for rows in method.batches(epoch)] for epoch in range(epochs)]


def test_a_step_is_the_two_terms_of_queries_and_gallery_through_their_streams(make, records):
    method = make(HER(lambda1=0.7, lambda2=0.3, turning="none"))
    with torch.no_grad():  # streams that differ, and not only by their names
        method.embedder.gallery.head.bias += 1.0
    twin, batch = copy.deepcopy(method), batch_of(records, method.batches(0)[0])
    queries = twin.embedder.query.embed(twin.embedder.query.features(batch.inputs[0::2]))
    gallery = twin.embedder.gallery.embed(twin.embedder.gallery.features(batch.inputs[1::2]))
    angles = torch.deg2rad(batch.extras["angle"][1::2] - batch.extras["angle"][0::2])
    errors = orientation_errors(twin.head(queries, gallery), angles)
    parts = twin.loss.with_orientation(queries, gallery, batch.labels[0::2], errors)
    found = method.step(batch)
    torch.testing.assert_close(found["loss"], 0.7 * parts.match + 0.3 * parts.orientation)
    torch.testing.assert_close(found["weight/mean"], parts.weight)


def test_all_parts_learn_and_each_stream_its_own_way(make, records):
    method = make()
    before = copy.deepcopy({name: part.state_dict() for name, part in (("e", method.embedder), ("h", method.head))})
    train(method, records, 1)
    for name, part in (("e", method.embedder), ("h", method.head)):
        for key, value in part.named_parameters():
            assert not torch.equal(value, before[name][key]), key
    query, gallery = method.embedder.query.head.weight, method.embedder.gallery.head.weight
    assert not torch.equal(query, gallery)


def test_steps_bring_the_loss_down(make, records):
    method = make(HER(turning="none"), rate=1e-2)
    losses = [torch.stack([s["loss"] for s in epoch]).mean() for epoch in train(method, records, 8)]
    assert losses[-1] < 0.7 * losses[0]


# -- each part on and off -------------------------------------------------------------------------


def test_without_head_and_weights_it_is_the_soft_margin_loss_on_the_same_pictures(make, records):
    method, full = make(head=False, weighted=False), make()
    rows = method.batches(0)[0]
    full.batches(0)
    batch = batch_of(records, rows)
    by, _ = turns(batch, "any", seed=method.seed, epoch=0)
    twin = copy.deepcopy(method.embedder)
    queries, gallery = twin.query(batch.inputs[0::2]), twin.gallery(rotate(batch.inputs[1::2], by))
    distances = 25 * torch.cdist(queries, gallery).square()
    gaps = distances - distances.diagonal()[:, None]
    expected = torch.log1p(torch.exp(-gaps[~torch.eye(4, dtype=torch.bool)])).mean()
    found = method.step(batch)
    torch.testing.assert_close(found["loss"], expected, rtol=1e-4, atol=1e-5)
    assert found["weight/mean"] == 1 and "orientation/degrees" not in found
    assert "orientation" not in method.readings and "orientation" in full.readings


def test_with_lambda2_of_0_the_head_costs_nothing_and_moves_nothing(make, records):
    """λ2 = 0 and weights of 1 leave the plain soft-margin loss."""
    method, twin = make(HER(lambda2=0.0), weighted=False), make(head=False, weighted=False)
    batch = batch_of(records, method.batches(0)[0])
    twin.batches(0)
    assert torch.equal(method.step(batch)["loss"], twin.step(batch)["loss"])
    torch.testing.assert_close(method.embedder.state_dict(), twin.embedder.state_dict(), rtol=0, atol=0)


def test_one_stream_serves_both(make, records):
    method = make(streams=1)
    assert not isinstance(method.embedder, TwoStreamEmbedder)
    assert all(value.isfinite() for s in train(method, records, 1)[0] for value in s.values())


def from_settings(settings, records, *, weighted=True, attention="none"):
    torch.manual_seed(0)
    query = Embedder(SmallResNet(1, (4, 8), attention=attention), 5)
    embedder, roles = TwoStreamEmbedder(query, copy.deepcopy(query)), records.columns["role"]
    sampler = CrossViewSampler.fitted(records.labels, batch_size=8, seed=0, roles=roles)
    optimizer, transform = OptimizerConfig(learning_rate=1e-3, loss_factor=10), ImageTransform(size=16, channels=1)
    loss = HardExemplarLoss(weighted=weighted)
    return settings.build(Parts(embedder, loss, sampler, optimizer, records, transform, steps=10, seed=7))


def test_variants_start_alike_and_see_the_same(records):
    built = {
        (attention, part): from_settings(HER(regression=part), records, weighted=part, attention=attention)
        for attention in ("fcam", "none")
        for part in (True, False)
    }
    plain = built["none", False].embedder.state_dict()
    for (attention, part), method in built.items():
        weights = method.embedder.state_dict()
        assert all(torch.equal(value, weights[name]) for name, value in plain.items())
        assert (len(weights) > len(plain)) == (attention == "fcam")
        assert (method.head is not None) == method.loss.weighted == part
        assert method.batches(1) == built["none", False].batches(1)


def test_only_its_own_loss_and_pairs_of_views_are_accepted(records):
    method = HER()
    assert method.sampler_for(HardExemplarLoss) == "cross_view"
    with pytest.raises(ConfigError, match="Set loss=hard_exemplar"):
        method.check(NormalizedSoftmaxLoss(2, 2), None)
    with pytest.raises(ConfigError, match="Set sampler=cross_view"):
        method.check(HardExemplarLoss(), NPairSampler(records.labels, classes=2, seed=0))


# -- a classifier in place of the triplets --------------------------------------------------------


def test_a_classifier_sees_both_views_of_the_same_pictures(make, records):
    method = make(HER(lambda1=0.7), head=False, weighted=False, classified=True)
    twin, batch = copy.deepcopy(method), batch_of(records, method.batches(0)[0])
    by, _ = turns(batch, "any", seed=method.seed, epoch=0)
    query, gallery = twin.embedder.query, twin.embedder.gallery
    queries, matches = query(batch.inputs[0::2]), gallery(rotate(batch.inputs[1::2], by))
    proxies = torch.nn.functional.normalize(twin.classifier.proxies, dim=1)
    logits = torch.cat([queries, matches]) @ proxies.T / 0.05
    labels = torch.cat([batch.labels[0::2], batch.labels[1::2]])
    found = method.step(batch)
    torch.testing.assert_close(found["loss"], 0.7 * torch.nn.functional.cross_entropy(logits, labels))
    assert found.keys() == make(head=False, weighted=False).step(batch).keys(), "what the twin reads, it reads"


def test_a_classifier_and_its_proxies_learn_and_go_on_where_they_stopped(make, records):
    method = make(head=False, weighted=False, rate=1e-2, classified=True)
    before = method.classifier.proxies.detach().clone()
    losses = [torch.stack([s["loss"] for s in epoch]).mean() for epoch in train(method, records, 8)]
    assert losses[-1] < 0.7 * losses[0] and not torch.equal(method.classifier.proxies, before)
    again = make(head=False, weighted=False, rate=1e-2, classified=True)
    again.load_state_dict(copy.deepcopy(method.state_dict()))
    batch = batch_of(records, method.batches(8)[0])
    again.batches(8)
    assert torch.equal(method.step(batch)["loss"], again.step(batch)["loss"])
    assert torch.equal(method.classifier.proxies, again.classifier.proxies)


def test_a_classifier_starts_as_the_baseline_and_knows_the_training_classes(records):
    labels = 10 * records.labels + 3  # as those of a data set of which alphabets are held out
    records = replace(records, labels=labels, classes=tuple(map(str, range(60))))
    settings = HER(regression=False), HER(regression=False, classifier=True)
    plain, method = (from_settings(each, records, weighted=False) for each in settings)
    assert plain.classifier is None and method.classifier.known == (3, 13, 23, 33, 43, 53)
    weights = method.embedder.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in plain.embedder.state_dict().items())
    assert method.batches(1) == plain.batches(1)
    rates = [group["initial_lr"] for group in method.optimizer.param_groups]
    assert rates[:-1] == [group["initial_lr"] for group in plain.optimizer.param_groups]
    assert rates[-1] == pytest.approx(10 * rates[0]), "of the proxies, as in other tables"


# -- going on, and what it says -------------------------------------------------------------------


def test_a_run_that_stops_in_mid_epoch_turns_its_pictures_as_it_would_have(make, records):
    method = make()
    train(method, records, 2)
    plan = method.batches(2)
    method.step(batch_of(records, plan[0]))
    state = copy.deepcopy(method.state_dict())
    again = make()
    again.load_state_dict(state)  # and no one asks it for batches before the epoch is over
    ours, theirs = (m.step(batch_of(records, plan[1])) for m in (method, again))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_collapsed_loss_is_that_of_equal_embeddings_and_a_guess(make, records):
    method = make()
    batch = batch_of(records, method.batches(0)[0])
    highest = math.log2(1 + math.exp(3.75 / 2))
    assert method.collapsed_loss(batch) == pytest.approx(highest * (math.log(2) + 0.5 * 2), rel=1e-5)
    assert make(head=False, weighted=False).collapsed_loss(batch) == pytest.approx(math.log(2), rel=1e-5)
    classified = make(head=False, weighted=False, classified=True)
    same = torch.ones(len(batch.labels), 5)
    assert classified.collapsed_loss(batch) == pytest.approx(classified.classifier(same, batch.labels).item())


def test_shares_are_of_the_triplets(make, records):
    for scalars in train(make(), records, 1)[0]:
        hard, easy = scalars["triplets_share/hard"], scalars["triplets_share/easy"]
        assert hard >= 0 and easy >= 0 and hard + easy <= 1
        assert 0 <= scalars["orientation/degrees"] <= 180


@pytest.mark.parametrize("classified", [False, True])
def test_a_stand_in_of_the_wrong_role_takes_no_part(make, records, classified):
    """A query that cannot be read may be replaced by a gallery image of its class."""
    rows = make().batches(0)[0]
    other = next(row for row in np.flatnonzero(records.labels == records.labels[rows[0]]) if row % 4 > 1)
    losses = []
    for batch in (batch_of(records, [int(other), *rows[1:]], skipped=(rows[0],)), batch_of(records, rows[2:])):
        method = make(HER(turning="none"), classified=classified)
        method.embedder.eval()  # so that a row's embedding does not depend on the batch
        losses.append(method.step(batch)["loss"])
    torch.testing.assert_close(*losses)


def test_shows_its_hardest_exemplars(make, records):
    method = make()
    assert method.exhibits() == ()
    train(method, records, 1)
    (shown,) = method.exhibits()
    assert from_json(to_json([shown])) == (shown,)
    for each in shown.tuples:
        query, match, nearer = (member.record for member in each.members)
        roles, labels = records.columns["role"], records.labels
        assert [roles[row] for row in (query, match, nearer)] == [1, 2, 2]
        assert labels[query] == labels[match] != labels[nearer]
    gaps = [float(each.caption.removeprefix("gap ")) for each in shown.tuples]
    assert gaps == sorted(gaps)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'quarters'"):
        HER(turning="quarter")
    with pytest.raises(ConfigError, match="-1 came"):
        HER(lambda2=-1)


# -- several processes ----------------------------------------------------------------------------


def paired_method(classified):
    """Of vectors, without batch norm, which sees only its process's rows on a CPU."""
    torch.manual_seed(0)
    embedder = TwoStreamEmbedder(Embedder(Identity(5), 3), Embedder(Identity(5), 3)).double()
    head, classifier = OrientationHead(3, 4).double(), NormalizedSoftmaxLoss(4, 3).double() if classified else None
    parts = torch.nn.ModuleList([part for part in (embedder, head, classifier) if part is not None])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    return HERTraining(embedder, HardExemplarLoss(), None, optimizer, 0, head, HER(turning="none"), classifier)


def paired_batch(pairs):
    rng = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, 5, generator=rng, dtype=torch.float64)
    extras = {"role": torch.tensor([1, 2] * 4), "angle": 90 * torch.rand(8, generator=rng, dtype=torch.float64)}
    rows = slice(2 * pairs.start, 2 * pairs.stop)
    extras = {name: column[rows] for name, column in extras.items()}
    return Batch(inputs[rows], torch.arange(4).repeat_interleave(2)[rows], torch.arange(8)[rows], extras)


def weights_of(method):
    parts = {"e": method.embedder, "h": method.head, "c": method.classifier}
    states = {name: part.state_dict() for name, part in parts.items() if part is not None}
    return {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}


def one_of_two(number, folder, classified):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    try:
        method = paired_method(classified)
        scalars = method.step(paired_batch(range(2 * number, 2 * number + 2)))
        shown = [member.record for member in method.exhibits()[0].tuples[0].members]
        torch.save({"scalars": scalars, "weights": weights_of(method), "shown": shown}, f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("classified", [False, True])
def test_two_processes_take_the_step_of_one(tmp_path, classified):
    mp.start_processes(one_of_two, args=(str(tmp_path), classified), nprocs=2, start_method="spawn")
    method = paired_method(classified)
    scalars = method.step(paired_batch(range(4)))
    for number in range(2):
        found = torch.load(tmp_path / f"{number}.pt", weights_only=True)
        torch.testing.assert_close(found["scalars"], scalars)
        torch.testing.assert_close(found["weights"], weights_of(method))
        assert found["shown"] == [member.record for member in method.exhibits()[0].tuples[0].members]
