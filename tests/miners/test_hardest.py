"""Batch-hard mining against a double loop, and against the peer."""

import pytest
import torch

from vicinal.losses import BatchHardTripletLoss, TripletLoss
from vicinal.miners import hardest


@pytest.fixture
def batch(rng):
    return torch.randn(20, 4, generator=rng, dtype=torch.float64), torch.tensor(
        [0] * 5 + [1] * 4 + [2] * 10 + [3]
    )


@pytest.mark.parametrize("normalize", [True, False])
def test_the_farthest_positive_and_the_nearest_negative(batch, normalize):
    embeddings, labels = batch
    rows = embeddings / embeddings.norm(dim=1, keepdim=True) if normalize else embeddings
    expected = []
    for a in range(19):  # the last row has no positive
        distance = {k: float((rows[a] - rows[k]).norm()) for k in range(20) if k != a}
        same = [k for k in distance if labels[k] == labels[a]]
        other = [k for k in distance if labels[k] != labels[a]]
        expected.append((a, max(same, key=distance.get), min(other, key=distance.get)))
    found = hardest(embeddings, labels, normalize=normalize)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_the_triplet_loss_of_what_is_mined_is_the_batch_hard_loss(batch):
    embeddings, labels = batch
    mined = TripletLoss(0.3, squared=False).on_triplets(embeddings, hardest(embeddings, labels))
    torch.testing.assert_close(mined, BatchHardTripletLoss(0.3, normalize=True)(embeddings, labels))


def test_equals_the_peer(batch):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    theirs = miners.BatchHardMiner()(*batch)
    for ours, peer in zip(hardest(*batch), theirs, strict=True):
        assert torch.equal(ours, peer)
