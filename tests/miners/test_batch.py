"""Miners of a batch against loops over its rows, and against the peer."""

import inspect
import itertools
from functools import partial

import pytest
import torch

from vicinal import miners as miners_module
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
    ours = partial(batch_easy_hard, positive=positive, negative=negative)
    names = [rank.replace("_", "") for rank in (positive, negative)]
    return ours, ("BatchEasyHardMiner", *names)


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
@pytest.mark.parametrize("normalize", [True, False])
def test_equals_the_peer(ours, theirs, normalize, embeddings, rng):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    from pytorch_metric_learning.distances import LpDistance

    name, *arguments = theirs
    options = {}
    if "normalize" in inspect.signature(ours).parameters and name != "AngularMiner":
        ours = partial(ours, normalize=normalize)
        options["distance"] = LpDistance(normalize_embeddings=normalize)
    gallery = torch.randn(9, 4, generator=rng, dtype=torch.float64), torch.arange(9) % 4
    for reference in ((), (embeddings, LABELS), gallery):
        peer = getattr(miners, name)(*arguments, **options)(embeddings, LABELS, *reference)
        mine = MinerForPML(ours)(embeddings, LABELS, *reference)
        if len(mine) == 3 and len(peer) == 4:  # a positive and a negative for each anchor
            peer = (peer[0], peer[1], peer[3])
        for side in [slice(0, 3)] if len(mine) == 3 else [slice(0, 2), slice(2, 4)]:
            assert listed(mine[side]) == listed(peer[side])


@pytest.mark.parametrize(
    ("miner", "arguments", "message"),
    [
        (triplet_margin, {"kind": "semihard"}, "did you mean 'semi_hard'"),
        (easy_positive, {"negative": "semihard"}, "did you mean 'semi_hard'"),
        (semi_hard, {"rule": "random"}, "draws from a `generator`"),
        (semi_hard, {"rule": "nearst"}, "did you mean 'nearest'"),
        (batch_easy_hard, {"positive": "soft"}, "Known: "),
        (batch_easy_hard, {"positive": "semi_hard", "negative": "all"}, "Use easy or hard"),
    ],
)
def test_what_cannot_be_meant_is_rejected(miner, arguments, message, embeddings):
    with pytest.raises(ConfigError, match=message):
        inspect.unwrap(miner)(embeddings, LABELS, **arguments)


@pytest.mark.parametrize(
    "miner",
    [triplet_margin, partial(semi_hard, rule="all", margin=4.0), partial(angular, angle=1.0)],
)
def test_more_triplets_than_memory_holds_are_not_listed(miner, embeddings, monkeypatch):
    monkeypatch.setattr(miners_module, "MOST_TUPLES", 3)
    with pytest.raises(ConfigError, match="more than 3"):
        miner(embeddings, LABELS)
