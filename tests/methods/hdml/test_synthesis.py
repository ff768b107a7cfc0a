"""Synthetic tuples: the published layouts in loops, any loss through its core, and parts that add
up to the whole."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from vicinal import losses
from vicinal.losses import LOSSES, NPairLoss, TripletLoss, reduce
from vicinal.methods.hdml.synthesis import (
    ALONE,
    FeatureClassifier,
    Generator,
    Roles,
    Synthesis,
    harder,
)

PK = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
OVER_PAIRS = [kind() for kind in LOSSES.values() if kind.takes_reference and kind.single_negatives]


class Unchanged(Generator):
    """A perfect generator for features that are the embeddings."""

    def forward(self, embeddings):
        return embeddings


def synthesis(loss, dim=4, width=6, perfect=False, **settings):
    torch.manual_seed(0)
    generator = Unchanged(dim, width) if perfect else Generator(dim, width)
    return Synthesis(loss, generator, **settings)


def embeddings_for(labels, rng, dim=4, dtype=torch.float32):
    return torch.randn(len(labels), dim, generator=rng, dtype=dtype)


@pytest.fixture
def head():
    torch.manual_seed(1)
    return torch.nn.Linear(6, 4)


def test_n_pair_tuples_are_those_of_the_paper_in_loops(rng, head):
    """Eqs. (7), (8) and (13), one pair at a time, with inner products as in the authors' code."""
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    lambda_ = torch.tensor(0.4)
    loss = NPairLoss(l2=0.1, blocks=True)
    embeddings = embeddings_for(labels, rng)
    make = synthesis(loss)
    found = make(embeddings, labels, lambda_, head)
    generator = make.generator
    anchors, positives = embeddings.chunk(2)
    total = 0.0
    squares = []
    for i in range(3):
        again = head(generator(anchors[i : i + 1]))[0]
        distance = (anchors[i] - positives[i]).norm()
        drawn = [harder(anchors[i], positives[j], distance, lambda_) for j in range(3)]
        assert_close(drawn[i], positives[i])
        tuples = head(generator(torch.stack(drawn)))
        products = tuples @ again
        total = total - torch.log_softmax(products, dim=0)[i] + 0.1 / 4 * again.square().sum()
        squares.append(tuples.square().sum(dim=1))
    wanted = total / 3 + 0.1 / 4 * torch.cat(squares).mean()
    assert_close(reduce(loss.core(found.comparisons), "mean"), wanted)


def test_triplets_keep_anchor_and_positive_and_replace_the_negative(rng, head):
    """Eqs. (7), (8) and (12)."""
    labels = torch.tensor([0, 1, 0, 1, 2, 3])
    loss = TripletLoss(1.0, normalize=False, blocks=True, reduction="sum")
    embeddings = embeddings_for(labels, rng)
    make = synthesis(loss)
    found = make(embeddings, labels, torch.tensor(0.4), head)
    anchor, positive, negative = embeddings.chunk(3)
    drawn = harder(anchor, negative, (anchor - positive).norm(dim=1), 0.4)
    again = head(make.generator(torch.cat([anchor, positive, drawn])))
    assert_close(reduce(loss.core(found.comparisons), "sum"), loss(again, labels))


def test_label_terms_of_the_presets(rng, head):
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    loss = NPairLoss(blocks=True)
    embeddings = embeddings_for(labels, rng)
    lambda_ = torch.tensor(0.5)
    classifier = FeatureClassifier(6, torch.arange(3))
    for average in ("parts", "rows", "sum"):
        make = synthesis(loss, label_average=average)
        anchors, positives = embeddings.chunk(2)
        distance = (anchors - positives).norm(dim=1)
        drawn = harder(anchors[:, None], positives[None], distance[:, None], lambda_).flatten(0, 1)

        def costs(vectors, classes, make=make):
            return classifier.label_costs(make.generator(vectors), classes)

        moved = costs(drawn, labels[3:].repeat(3))  # row i N + j has the label of p_j
        # Each row once (Ỹ of Eq. 9): drawn[i N + i] is the positive of anchor i, unmoved.
        negatives = moved[~torch.eye(3, dtype=torch.bool).flatten()]
        every = torch.cat([costs(embeddings, labels), negatives])
        assert len(every) == 3 + 3 + 3 * 2
        wanted = {
            "parts": costs(anchors, labels[:3]).mean() + moved.mean(),
            "rows": every.mean(),
            "sum": every.sum(),
        }
        found = make(embeddings, labels, lambda_, head)
        j_soft = classifier.label_costs(found.features, found.labels) @ found.label_weights
        assert_close(j_soft, wanted[average])


@pytest.mark.parametrize("loss", OVER_PAIRS, ids=lambda loss: type(loss).__name__)
def test_without_pull_and_with_a_perfect_generator_synthetic_tuples_are_the_real_ones(loss, rng):
    embeddings = embeddings_for(PK, rng)
    found = synthesis(loss, perfect=True)(
        embeddings, PK, torch.tensor(1.0), lambda features: features
    )
    assert_close(reduce(loss.core(found.comparisons), "mean"), loss(embeddings, PK))


@pytest.mark.parametrize("loss", OVER_PAIRS, ids=lambda loss: type(loss).__name__)
def test_every_loss_meets_harder_negatives(loss, rng):
    embeddings = embeddings_for(PK, rng).requires_grad_()
    make = synthesis(loss, perfect=True)
    found, base = (
        make(embeddings, PK, torch.tensor(lambda_), lambda z: z).comparisons
        for lambda_ in (0.1, 1.0)
    )
    keep = base.keep_negative
    apart = torch.linalg.vector_norm(embeddings[:, None] - embeddings, dim=2)
    assert (found.negative != base.negative)[keep].any()
    near = (apart * (PK[:, None] == PK)).sum(dim=1) / 2
    still = keep & (apart <= near[:, None])
    assert_close(found.negative[still], base.negative[still])
    gradient = torch.autograd.grad(reduce(loss.core(found), "mean"), embeddings)[0]
    assert gradient.isfinite().all()


def test_the_hardest_are_each_anchors_nearest_negatives(rng):
    embeddings = embeddings_for(PK, rng)
    loss = losses.ContrastiveLoss()
    roles = Roles.of(loss, len(PK)).limited(embeddings, PK, 2)
    distances = torch.cdist(embeddings, embeddings).masked_fill(PK[:, None] == PK, torch.inf)
    for anchor, chosen in enumerate(roles.chosen.tolist()):
        assert set(chosen) == set(distances[anchor].argsort()[:2].tolist())
    found = synthesis(loss, hardest=2)(
        embeddings, PK, torch.tensor(0.5), torch.nn.Linear(6, 4)
    ).comparisons
    assert found.negative.shape == (9, 2) and found.keep_negative.all()


def test_the_reference_is_the_mean_distance_to_the_positives(rng):
    embeddings = embeddings_for(PK, rng)
    labels = PK.clone()
    labels[-1] = 5  # a class of one
    found = Roles.of(losses.ContrastiveLoss(), len(labels)).reference(embeddings, labels)
    for i in range(len(labels)):
        own = [
            float((embeddings[i] - embeddings[j]).norm())
            for j in range(9)
            if j != i and labels[i] == labels[j]
        ]
        expected = sum(own) / len(own) if own else ALONE
        assert found[i] == pytest.approx(expected, rel=1e-5)


def test_batches_without_tuples_cost_nothing(rng, head):
    for labels, loss in itertools.product(
        ([0, 0, 0, 0], [0, 1, 2, 3]), (losses.ContrastiveLoss(), NPairLoss())
    ):
        labels = torch.tensor(labels)
        found = synthesis(loss)(
            embeddings_for(labels, rng).requires_grad_(), labels, torch.tensor(0.5), head
        )
        assert reduce(loss.core(found.comparisons), "mean").isfinite()
        assert found.label_weights.isfinite().all()


REPEATED = {
    "triplet": (TripletLoss(blocks=True), torch.tensor([0, 1, 0, 1, 2, 3])),
    "n_pair": (NPairLoss(blocks=True, l2=0.1), torch.tensor([0, 1, 2, 0, 1, 2])),
}


@pytest.mark.parametrize(
    ("name", "generated", "embedded"), [("triplet", 6 * 2, 3 * 2), ("n_pair", 21, 15)]
)
def test_repeated_rows_pass_the_batch_norms(name, generated, embedded, rng):
    """The authors' [z; a; p; ẑ]: 6T rows of T = 2 triplets, 2N + 2N + N² of N = 3 pairs."""
    loss, labels = REPEATED[name]
    make = synthesis(loss, twice=True)
    head = torch.nn.Linear(6, 4)
    seen = []
    for module in (make.generator, head):
        module.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    make(embeddings_for(labels, rng), labels, torch.tensor(0.4), head)
    assert seen == [generated, embedded]
