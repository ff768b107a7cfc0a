"""Triplets by margin and angle, pairs by margin, rank and histogram: against loops, and against the
peer."""

import inspect
import itertools
import math
from functools import partial

import pytest
import torch

from vicinal.compat.pml import LossForPML, MinerForPML
from vicinal.errors import ConfigError
from vicinal.losses import ContrastiveLoss, MultiSimilarityLoss
from vicinal.miners import angular, batch_easy_hard, pair_margin, triplet_margin, uniform_histogram

LABELS = torch.tensor([0] * 5 + [1] * 4 + [2] * 6 + [3])
PAIRS = [(a, b) for a in range(16) for b in range(16) if a != b]
RANKS = [
    pair
    for pair in itertools.product(("hard", "semi_hard", "easy", "all"), repeat=2)
    if "semi_hard" not in pair or not set(pair) <= {"semi_hard", "all"}
]


@pytest.fixture
def embeddings(rng):
    return torch.randn(16, 4, generator=rng, dtype=torch.float64)


def distances(embeddings):
    unit = embeddings / embeddings.norm(dim=1, keepdim=True)
    return (unit[:, None] - unit).norm(dim=2).tolist()


def listed(columns):
    return list(zip(*(column.tolist() for column in columns), strict=True))


def triplets():
    return [
        (a, p, n)
        for a, p in PAIRS
        if LABELS[a] == LABELS[p]
        for n in range(len(LABELS))
        if LABELS[n] != LABELS[a]
    ]


@pytest.mark.parametrize("kind", ["all", "hard", "semi_hard", "easy"])
def test_triplets_by_margin_are_those_of_a_loop(kind, embeddings):
    d = distances(embeddings)
    wanted = {
        "all": lambda excess: excess <= 0.2,
        "hard": lambda excess: excess <= 0,
        "semi_hard": lambda excess: 0 < excess <= 0.2,
        "easy": lambda excess: excess > 0.2,
    }[kind]
    expected = {(a, p, n) for a, p, n in triplets() if wanted(d[a][n] - d[a][p])}
    found = listed(triplet_margin(embeddings, LABELS, kind=kind))
    assert set(found) == expected and len(found) == len(expected) > 0


def test_kinds_of_triplets_are_all_of_them(embeddings):
    every = set(listed(triplet_margin(embeddings, LABELS)))
    hard, semi, easy = (
        set(listed(triplet_margin(embeddings, LABELS, kind=k)))
        for k in ("hard", "semi_hard", "easy")
    )
    assert hard | semi == every and not hard & semi and every | easy == set(triplets())


@pytest.mark.parametrize("normalize", [True, False])
def test_triplets_by_angle_are_those_of_a_loop(normalize, embeddings):
    rows = embeddings / embeddings.norm(dim=1, keepdim=True) if normalize else embeddings
    expected = []
    for a, p, n in triplets():
        center = (rows[a] + rows[p]) / 2
        if math.atan((rows[a] - rows[p]).norm() / (2 * (rows[n] - center).norm())) > math.radians(
            35
        ):
            expected.append((a, p, n))
    found = listed(angular(embeddings, LABELS, angle=35.0, normalize=normalize))
    assert sorted(found) == sorted(expected) and found == sorted(
        found, key=lambda triplet: triplet[0]
    )


def test_pairs_by_margin_are_those_of_a_loop(embeddings):
    d = distances(embeddings)
    found = pair_margin(embeddings, LABELS, positive_margin=1.1, negative_margin=1.3)
    assert listed(found.positive) == [
        (a, b) for a, b in PAIRS if LABELS[a] == LABELS[b] and d[a][b] > 1.1
    ]
    assert listed(found.negative) == [
        (a, b) for a, b in PAIRS if LABELS[a] != LABELS[b] and d[a][b] < 1.3
    ]


def by_rank(d, positive, negative, allowed):
    """The chosen pairs of each anchor, one anchor at a time."""
    found = {"positive": [], "negative": []}
    for a in range(len(LABELS)):
        same = [k for k in range(len(LABELS)) if k != a and LABELS[k] == LABELS[a]]
        other = [k for k in range(len(LABELS)) if LABELS[k] != LABELS[a]]
        if positive != "all":
            same = [k for k in same if allowed[0] <= d[a][k] <= allowed[1]]
        if negative != "all":
            other = [k for k in other if allowed[0] <= d[a][k] <= allowed[1]]
        nearest, farthest = (
            partial(choose, key=d[a].__getitem__, default=None) for choose in (min, max)
        )
        p = {"easy": nearest, "hard": farthest}.get(positive, lambda _: None)(same)
        n = {"easy": farthest, "hard": nearest}.get(negative, lambda _: None)(other)
        if positive == "semi_hard" and n is not None:
            p = farthest([k for k in same if d[a][k] < d[a][n]])
        if negative == "semi_hard" and p is not None:
            n = nearest([k for k in other if d[a][k] > d[a][p]])
        if "all" not in (positive, negative) and (p is None or n is None):
            continue
        found["positive"] += [(a, k) for k in (same if positive == "all" else [p]) if k is not None]
        found["negative"] += [
            (a, k) for k in (other if negative == "all" else [n]) if k is not None
        ]
    return found


@pytest.mark.parametrize("ranks", RANKS, ids="-".join)
@pytest.mark.parametrize("allowed", [None, (0.9, 1.6)])
def test_pairs_by_rank_are_those_of_a_loop(ranks, allowed, embeddings):
    expected = by_rank(distances(embeddings), *ranks, allowed or (0, 9))
    ranges = {"positive_range": allowed, "negative_range": allowed}
    found = batch_easy_hard(embeddings, LABELS, positive=ranks[0], negative=ranks[1], **ranges)
    assert sorted(listed(found.positive)) == expected["positive"]
    assert sorted(listed(found.negative)) == expected["negative"]


def test_a_histogram_gives_each_of_its_bins_alike(embeddings):
    d = torch.tensor(distances(embeddings))
    generator = torch.Generator().manual_seed(0)
    found = uniform_histogram(
        embeddings, LABELS, generator=generator, bins=4, positives_per_bin=3, negatives_per_bin=500
    )
    every = [(a, b) for a, b in PAIRS if LABELS[a] != LABELS[b]]
    assert sorted(listed(found.negative)) == every  # a bin gives no more than it has
    kept = torch.stack([d[a, b] for a, b in PAIRS if LABELS[a] == LABELS[b]])
    edges = torch.linspace(float(kept.min()), float(kept.max()), 5)[1:-1].double()
    drawn = torch.stack([d[a, b] for a, b in listed(found.positive)])
    sizes, counts = (
        torch.bincount(torch.bucketize(some, edges), minlength=4) for some in (kept, drawn)
    )
    assert torch.equal(counts, sizes.clamp(max=3)) and counts.sum() > 6
    assert len(set(listed(found.positive))) == len(drawn)


@pytest.mark.parametrize(
    ("ours", "name", "arguments"),
    [
        *((partial(triplet_margin, margin=0.3, kind=kind), "TripletMarginMiner", {"margin": 0.3, "type_of_triplets": t})
          for kind, t in (("all", "all"), ("hard", "hard"), ("semi_hard", "semihard"), ("easy", "easy"))),
        (partial(angular, angle=33.0, normalize=False), "AngularMiner", {"angle": 33}),
        (partial(pair_margin, positive_margin=1.0, negative_margin=1.4), "PairMarginMiner",
         {"pos_margin": 1.0, "neg_margin": 1.4}),
        *((partial(batch_easy_hard, positive=p, negative=n, positive_range=(0.5, 1.8), negative_range=(0.5, 1.8)),
           "BatchEasyHardMiner",
           {"pos_strategy": p.replace("_", ""), "neg_strategy": n.replace("_", ""),
            "allowed_pos_range": (0.5, 1.8), "allowed_neg_range": (0.5, 1.8)}) for p, n in RANKS),
    ],
)  # fmt: skip
def test_equals_the_peer(ours, name, arguments, embeddings, rng):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    gallery = torch.randn(9, 4, generator=rng, dtype=torch.float64), torch.arange(9) % 4
    for reference in ((), gallery):
        theirs = getattr(miners, name)(**arguments)(embeddings, LABELS, *reference)
        mine = MinerForPML(ours)(embeddings, LABELS, *reference)
        assert len(mine) == len(theirs)
        sides = [slice(0, 3)] if len(mine) == 3 else [slice(0, 2), slice(2, 4)]
        for side in sides:
            assert sorted(listed(mine[side])) == sorted(listed(theirs[side]))


def test_the_histogram_of_the_peer_has_the_same_bins(embeddings):
    """Both draw at random; of bins that hold fewer pairs than wanted ours gives all that the peer's
    can give."""
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    theirs = miners.UniformHistogramMiner(num_bins=20, pos_per_bin=400, neg_per_bin=2000)(
        embeddings, LABELS
    )
    mine = uniform_histogram(
        embeddings,
        LABELS,
        generator=torch.Generator(),
        bins=20,
        positives_per_bin=400,
        negatives_per_bin=2000,
    )
    assert set(listed(mine.positive)) == set(listed(theirs[:2]))
    assert set(listed(mine.negative)) == set(listed(theirs[2:]))


def test_mined_pairs_train_a_loss_as_the_peer_trains_its_own(embeddings):
    found = pair_margin(embeddings, LABELS, positive_margin=1.0, negative_margin=1.4)
    indices = (*found.positive, *found.negative)
    for loss in (MultiSimilarityLoss(epsilon=None), ContrastiveLoss()):
        expected = LossForPML(loss)(embeddings, LABELS, indices)
        torch.testing.assert_close(loss.on_pairs(embeddings, LABELS, *found), expected)


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        (
            lambda x: inspect.unwrap(triplet_margin)(x, LABELS, kind="semihard"),
            "did you mean 'semi_hard'",
        ),
        (lambda x: triplet_margin(x, LABELS, most=3), "the limit is 3"),
        (lambda x: angular(x, LABELS, angle=90.0), "0 <= angle < 90, got 90"),
        (lambda x: angular(x, LABELS, angle=1.0, most=3), "the limit is 3"),
        (lambda x: inspect.unwrap(batch_easy_hard)(x, LABELS, positive="soft"), "Known: "),
        (
            lambda x: batch_easy_hard(x, LABELS, positive="semi_hard", negative="all"),
            "Use easy or hard",
        ),
        (lambda x: uniform_histogram(x, LABELS, generator=torch.Generator(), bins=0), "got bins=0"),
    ],
)
def test_what_cannot_be_meant_is_rejected(mine, message, embeddings):
    with pytest.raises(ConfigError, match=message):
        mine(embeddings)
