"""Easy-positive mining against a double loop, and against the peer."""

import inspect

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.miners import easy_positive


@pytest.fixture
def batch(rng):
    return torch.randn(24, 4, generator=rng, dtype=torch.float64), torch.arange(24) % 5


def by_hand(embeddings, labels, negative):
    rows = embeddings / embeddings.norm(dim=1, keepdim=True)
    for a in range(len(labels)):
        distance = {k: float((rows[a] - rows[k]).norm()) for k in range(len(labels)) if k != a}
        nearest = min((k for k in distance if labels[k] == labels[a]), key=distance.get)
        others = [k for k in distance if labels[k] != labels[a]]
        if negative == "semi_hard":
            others = [k for k in others if distance[k] > distance[nearest]]
        if others:
            yield a, nearest, min(others, key=distance.get)


@pytest.mark.parametrize("negative", ["semi_hard", "hardest"])
def test_the_nearest_of_the_class_is_the_positive(batch, negative):
    found = easy_positive(*batch, negative=negative)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == list(
        by_hand(*batch, negative)
    )


def test_an_anchor_whose_positive_is_farthest_of_all_has_no_semi_hard_negative():
    line, labels = torch.tensor([[0.0], [9.0], [1.0], [8.0]]), torch.tensor([0, 0, 1, 2])
    assert easy_positive(line, labels, normalize=False).anchor.tolist() == []
    assert easy_positive(line, labels, negative="hardest", normalize=False).negative.tolist() == [
        2,
        3,
    ]


@pytest.mark.parametrize(("negative", "theirs"), [("semi_hard", "semihard"), ("hardest", "hard")])
def test_equals_the_peer(batch, negative, theirs):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    anchor, positive, _, other = miners.BatchEasyHardMiner("easy", theirs)(*batch)
    for ours, peer in zip(
        easy_positive(*batch, negative=negative), (anchor, positive, other), strict=True
    ):
        assert torch.equal(ours, peer)


def test_an_unknown_kind_of_negative_is_rejected(batch):
    with pytest.raises(ConfigError, match="did you mean 'semi_hard'"):
        inspect.unwrap(easy_positive)(*batch, negative="semihard")
