"""What is assessed: tuples of a subset, their losses by hand, and what the assessor sees of
them."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.errors import ConfigError
from vicinal.losses import (
    ContrastiveLoss,
    MarginLoss,
    TripletLoss,
)
from vicinal.methods.ala.assessment import EpisodeLoss, PairScoring, TripletScoring

LABELS = torch.tensor([0, 1, 2, 0, 1, 2])  # [a; p] of three classes


@pytest.fixture
def embeddings(rng):
    return torch.randn(6, 4, generator=rng, dtype=torch.float64)


def distance(embeddings, i, j):
    return (embeddings[i] - embeddings[j]).norm()


def test_triplet_losses_are_the_papers_equation_four(embeddings):
    scoring = TripletScoring(TripletLoss(margin=0.7, squared=False, normalize=False))
    expected = [
        torch.relu(distance(embeddings, t, 3 + t) - distance(embeddings, t, 3 + (t + 1) % 3) + 0.7)
        for t in range(3)
    ]
    assert_close(scoring(embeddings, LABELS).losses, torch.stack(expected))


def test_the_assessor_sees_anchor_positive_negative_in_this_order(embeddings):
    members = TripletScoring(TripletLoss())(embeddings, LABELS).members
    assert torch.equal(members[1], embeddings[[1, 4, 5]])


@pytest.mark.parametrize(
    "loss", [ContrastiveLoss(margin=3.0), MarginLoss()], ids=["contrastive", "margin"]
)
def test_pairs_are_the_halves_of_triplets(loss, embeddings):
    loss = loss.double()
    whole = TripletScoring(loss)(embeddings, LABELS)
    pairs = PairScoring(loss)(embeddings, LABELS)
    assert_close(pairs.losses.view(3, 2).sum(dim=1), whole.losses)
    assert pairs.members.shape == (6, 2, 4) and PairScoring.seen == 2
    assert torch.equal(pairs.members[0], embeddings[[0, 3]]) and torch.equal(
        pairs.members[1], embeddings[[0, 4]]
    )


def test_a_loss_that_is_no_sum_over_pairs_cannot_be_weighed_by_pairs():
    with pytest.raises(
        ConfigError, match=r"needs a sum over pairs, got TripletLoss\. Set method\.units=triplets"
    ):
        PairScoring(TripletLoss())


def test_the_baseline_takes_all_tuples_of_both_subsets(embeddings, rng):
    scoring = TripletScoring(TripletLoss(margin=5.0))
    more = torch.randn(4, 4, generator=rng, dtype=torch.float64)
    labels = torch.tensor([3, 4, 3, 4])
    both = torch.cat([embeddings, more])
    losses = torch.cat(
        [
            scoring(embeddings, LABELS).losses,
            scoring(more, labels).losses,
        ]
    )
    baseline = EpisodeLoss(scoring, training_rows=6)
    assert_close(baseline(both, torch.cat([LABELS, labels])), losses.mean())
    assert baseline.loss is scoring.loss
