"""Miners of a batch against the peer."""

import inspect
from functools import partial

import pytest
import torch

from vicinal import miners as miners_module
from vicinal.compat.pml import MinerForPML
from vicinal.errors import ConfigError
from vicinal.miners import easy_positive, hardest, multi_similarity, semi_hard

LABELS = torch.tensor([0] * 5 + [1] * 4 + [2] * 6 + [3])


@pytest.fixture
def embeddings(rng):
    return torch.randn(16, 4, generator=rng, dtype=torch.float64)


def listed(columns):
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (hardest, ("BatchHardMiner",)),
        (easy_positive, ("BatchEasyHardMiner", "easy", "semihard")),
        (partial(easy_positive, negative="hardest"), ("BatchEasyHardMiner", "easy", "hard")),
        (multi_similarity, ("MultiSimilarityMiner", 0.1)),
        (
            partial(semi_hard, margin=0.3, rule="all", squared=False),
            ("TripletMarginMiner", 0.3, "semihard"),
        ),
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_equals_the_peer(ours, theirs, normalize, embeddings, rng):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    from pytorch_metric_learning.distances import LpDistance

    name, *arguments = theirs
    options = {}
    if "normalize" in inspect.signature(ours).parameters:
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
        (easy_positive, {"negative": "semihard"}, "did you mean 'semi_hard'"),
        (semi_hard, {"rule": "random"}, "draws from a `generator`"),
        (semi_hard, {"rule": "nearst"}, "did you mean 'nearest'"),
    ],
)
def test_what_cannot_be_meant_is_rejected(miner, arguments, message, embeddings):
    with pytest.raises(ConfigError, match=message):
        inspect.unwrap(miner)(embeddings, LABELS, **arguments)


def test_more_triplets_than_memory_holds_are_not_listed(embeddings, monkeypatch):
    monkeypatch.setattr(miners_module, "MOST_TUPLES", 3)
    with pytest.raises(ConfigError, match="more than 3"):
        semi_hard(embeddings, LABELS, 4.0, rule="all")
