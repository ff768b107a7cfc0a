"""Miners of a batch against loops over its rows, and against the peer."""

import inspect
import itertools
import math
from functools import partial

import pytest
import torch

from vicinal.compat.pml import MinerForPML
from vicinal.errors import ConfigError
from vicinal.miners import (
    angular,
    batch_easy_hard,
    easy_positive,
    hardest,
    multi_similarity,
    pair_margin,
    semi_hard,
    triplet_margin,
    uniform_histogram,
)

LABELS = torch.tensor([0] * 5 + [1] * 4 + [2] * 6 + [3])
ROWS = range(len(LABELS))
NEAR = [[k for k in ROWS if k != a and LABELS[k] == LABELS[a]] for a in ROWS]
FAR = [[k for k in ROWS if LABELS[k] != LABELS[a]] for a in ROWS]
RANKS = [
    pair
    for pair in itertools.product(("hard", "semi_hard", "easy", "all"), repeat=2)
    if "semi_hard" not in pair or not {*pair} <= {"semi_hard", "all"}
]


@pytest.fixture
def embeddings(rng):
    return torch.randn(16, 4, generator=rng, dtype=torch.float64)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def distances(rows):
    return (rows[:, None] - rows).norm(dim=2).tolist()


def listed(columns):
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


# -- triplets: what an anchor's distances ``d``, positives and negatives give as (positive, negative)


def every(keep):
    """Triplets whose negative is so much farther than the positive."""
    return lambda d, near, far: [(p, n) for p in near for n in far if keep(d[n] - d[p])]


def farthest_and_nearest(d, near, far):
    return [(max(near, key=d.__getitem__), min(far, key=d.__getitem__))] if near else []


def nearest_and(beyond):
    def choose(d, near, far):
        if not near:
            return []
        p = min(near, key=d.__getitem__)
        others = [n for n in far if not beyond or d[n] > d[p]]
        return [(p, min(others, key=d.__getitem__))] if others else []

    return choose


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("mine", "choose"),
    [
        (hardest, farthest_and_nearest),
        (easy_positive, nearest_and(beyond=True)),
        (partial(easy_positive, negative="hardest"), nearest_and(beyond=False)),
        *(
            (partial(semi_hard, margin=m, squared=False, rule="all"), every(keep))
            for m, keep in ((0.2, lambda e: 0 < e < 0.2), (math.inf, lambda e: e > 0))
        ),
    ],
)
def test_triplets_are_those_of_a_loop(mine, choose, normalize, embeddings):
    d = distances(unit(embeddings) if normalize else embeddings)
    expected = [(a, *pair) for a in ROWS for pair in choose(d[a], NEAR[a], FAR[a])]
    assert listed(mine(embeddings, LABELS, normalize=normalize)) == sorted(expected) != []


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        ("all", lambda excess: excess <= 0.2),
        ("hard", lambda excess: excess <= 0),
        ("semi_hard", lambda excess: 0 < excess <= 0.2),
        ("easy", lambda excess: excess > 0.2),
    ],
)
def test_triplets_by_margin_are_those_of_a_loop(kind, keep, embeddings):
    d = distances(unit(embeddings))
    expected = [(a, *pair) for a in ROWS for pair in every(keep)(d[a], NEAR[a], FAR[a])]
    assert listed(triplet_margin(embeddings, LABELS, kind=kind)) == expected != []


@pytest.mark.parametrize("normalize", [True, False])
def test_triplets_by_angle_are_those_of_a_loop(normalize, embeddings):
    rows = unit(embeddings) if normalize else embeddings
    expected = []
    for a, p in [(a, p) for a, near in enumerate(NEAR) for p in near]:
        center = (rows[a] + rows[p]) / 2
        wide = [(rows[a] - rows[p]).norm() / (2 * (rows[n] - center).norm()) for n in FAR[a]]
        angles = [math.degrees(math.atan(tangent)) for tangent in wide]
        expected += [(a, p, n) for n, angle in zip(FAR[a], angles, strict=True) if angle > 35]
    found = angular(embeddings, LABELS, angle=35.0, normalize=normalize)
    assert listed(found) == expected and (found.anchor.diff() >= 0).all()


# -- pairs


def test_pairs_by_margin_are_those_of_a_loop(embeddings):
    d = distances(unit(embeddings))
    found = pair_margin(embeddings, LABELS, positive_margin=1.1, negative_margin=1.3)
    assert listed(found.positive) == [(a, p) for a in ROWS for p in NEAR[a] if d[a][p] > 1.1]
    assert listed(found.negative) == [(a, n) for a in ROWS for n in FAR[a] if d[a][n] < 1.3]


@pytest.mark.parametrize("epsilon", [0.1, 0.0, -0.3, 3.0])
def test_multi_similarity_equals_the_printed_rule(embeddings, epsilon):
    s = (unit(embeddings) @ unit(embeddings).T).tolist()
    positive = []
    negative = []
    for a in ROWS:
        weakest = min((s[a][k] for k in NEAR[a]), default=math.inf)
        strongest = max(s[a][k] for k in FAR[a])
        positive += [(a, k) for k in NEAR[a] if s[a][k] - epsilon < strongest]
        negative += [(a, k) for k in FAR[a] if s[a][k] + epsilon > weakest]
    found = multi_similarity(embeddings, LABELS, epsilon)
    assert (listed(found.positive), listed(found.negative)) == (positive, negative)


def by_rank(d, a, positive, negative, allowed):
    """The chosen positives and negatives of one anchor."""

    def within(rows, rank):
        return rows if rank == "all" else [k for k in rows if allowed[0] <= d[k] <= allowed[1]]

    nearest, farthest = (partial(choose, key=d.__getitem__, default=None) for choose in (min, max))
    same = within(NEAR[a], positive)
    other = within(FAR[a], negative)
    p = {"easy": nearest, "hard": farthest}.get(positive, lambda _: None)(same)
    n = {"easy": farthest, "hard": nearest}.get(negative, lambda _: None)(other)
    if positive == "semi_hard" and n is not None:
        p = farthest([k for k in same if d[k] < d[n]])
    if negative == "semi_hard" and p is not None:
        n = nearest([k for k in other if d[k] > d[p]])
    if "all" not in (positive, negative) and None in (p, n):
        return [], []
    chosen = same if positive == "all" else [p], other if negative == "all" else [n]
    return [[(a, k) for k in side if k is not None] for side in chosen]


@pytest.mark.parametrize("ranks", RANKS, ids="-".join)
@pytest.mark.parametrize("allowed", [None, (0.9, 1.6)])
def test_pairs_by_rank_are_those_of_a_loop(ranks, allowed, embeddings):
    d = distances(unit(embeddings))
    found = batch_easy_hard(
        embeddings,
        LABELS,
        positive=ranks[0],
        negative=ranks[1],
        positive_range=allowed,
        negative_range=allowed,
    )
    of_anchors = [by_rank(d[a], a, *ranks, allowed or (0, 9)) for a in ROWS]
    for pairs, expected in zip(found, zip(*of_anchors, strict=True), strict=True):
        assert listed(pairs) == list(itertools.chain(*expected))


def test_a_histogram_gives_each_of_its_bins_alike(embeddings):
    d = torch.tensor(distances(unit(embeddings)))
    generator = torch.Generator().manual_seed(0)
    found = uniform_histogram(
        embeddings, LABELS, generator=generator, bins=4, positives_per_bin=3, negatives_per_bin=500
    )
    # A bin gives no more than it has.
    assert listed(found.negative) == [(a, n) for a in ROWS for n in FAR[a]]
    kept = torch.stack([d[a, p] for a in ROWS for p in NEAR[a]])
    edges = torch.linspace(float(kept.min()), float(kept.max()), 5)[1:-1].double()
    drawn = d[found.positive.anchor, found.positive.other]
    sizes, counts = (
        torch.bincount(torch.bucketize(some, edges), minlength=4) for some in (kept, drawn)
    )
    assert torch.equal(counts, sizes.clamp(max=3)) and counts.sum() > 6
    assert len({*listed(found.positive)}) == len(drawn)


# -- the peer


def of_ranks(positive, negative):
    ranges = (0.5, 1.8)
    ours = partial(
        batch_easy_hard,
        positive=positive,
        negative=negative,
        positive_range=ranges,
        negative_range=ranges,
    )
    names = [rank.replace("_", "") for rank in (positive, negative)]
    return ours, ("BatchEasyHardMiner", *names, ranges, ranges)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hardest, ("BatchHardMiner",)),
        (partial(easy_positive, negative="semi_hard"), ("BatchEasyHardMiner", "easy", "semihard")),
        (partial(easy_positive, negative="hardest"), ("BatchEasyHardMiner", "easy", "hard")),
        (multi_similarity, ("MultiSimilarityMiner", 0.1)),
        *(
            (partial(triplet_margin, margin=0.3, kind=kind), ("TripletMarginMiner", 0.3, name))
            for kind, name in (("all", "all"), ("hard", "hard"), ("easy", "easy"))
        ),
        (
            partial(semi_hard, margin=0.3, rule="all", squared=False),
            ("TripletMarginMiner", 0.3, "semihard"),
        ),
        (partial(angular, angle=33.0, normalize=False), ("AngularMiner", 33)),
        (
            partial(pair_margin, positive_margin=1.0, negative_margin=1.4),
            ("PairMarginMiner", 1, 1.4),
        ),
        *(of_ranks(*ranks) for ranks in RANKS),
    ],
)
def test_equals_the_peer(ours, theirs, embeddings, rng):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    name, *arguments = theirs
    gallery = torch.randn(9, 4, generator=rng, dtype=torch.float64), torch.arange(9) % 4
    for reference in ((), gallery):
        peer = getattr(miners, name)(*arguments)(embeddings, LABELS, *reference)
        mine = MinerForPML(ours)(embeddings, LABELS, *reference)
        if len(mine) == 3 and len(peer) == 4:  # a positive and a negative for each anchor
            peer = (peer[0], peer[1], peer[3])
        for side in [slice(0, 3)] if len(mine) == 3 else [slice(0, 2), slice(2, 4)]:
            assert listed(mine[side]) == listed(peer[side])


def test_the_histogram_of_the_peer_has_the_same_bins(embeddings):
    """Both draw at random; of bins that hold fewer pairs than wanted ours gives all that the peer's
    can give."""
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    peer = miners.UniformHistogramMiner(20, 400, 2000)(embeddings, LABELS)
    sizes = {"bins": 20, "positives_per_bin": 400, "negatives_per_bin": 2000}
    found = uniform_histogram(embeddings, LABELS, generator=torch.Generator(), **sizes)
    for ours, theirs in zip(found, (peer[:2], peer[2:]), strict=True):
        assert {*listed(ours)} == {*listed(theirs)}


@pytest.mark.parametrize(
    ("miner", "arguments", "message"),
    [
        (triplet_margin, {"kind": "semihard"}, "did you mean 'semi_hard'"),
        (triplet_margin, {"most": 3}, "the limit is 3"),
        (easy_positive, {"negative": "semihard"}, "did you mean 'semi_hard'"),
        (semi_hard, {"rule": "random"}, "draws from a `generator`"),
        (semi_hard, {"rule": "nearst"}, "did you mean 'nearest'"),
        (semi_hard, {"rule": "all", "margin": 4.0, "most": 3}, "the limit is 3"),
        (angular, {"angle": 90.0}, "0 <= angle < 90, got 90"),
        (angular, {"angle": 1.0, "most": 3}, "the limit is 3"),
        (batch_easy_hard, {"positive": "soft"}, "Known: "),
        (batch_easy_hard, {"positive": "semi_hard", "negative": "all"}, "Use easy or hard"),
        (uniform_histogram, {"generator": torch.Generator(), "bins": 0}, "got bins=0"),
    ],
)
def test_what_cannot_be_meant_is_rejected(miner, arguments, message, embeddings):
    with pytest.raises(ConfigError, match=message):
        inspect.unwrap(miner)(embeddings, LABELS, **arguments)
