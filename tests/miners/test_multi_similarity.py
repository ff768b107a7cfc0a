"""Multi-similarity mining against the paper's rule, the peer, and the loss that mines for
itself."""

import pytest
import torch

from vicinal.losses import MultiSimilarityLoss
from vicinal.losses.multi_similarity import informative
from vicinal.miners import multi_similarity
from vicinal.tuples import other_class, same_class


@pytest.mark.parametrize("epsilon", [0.1, 0.0, -0.3])
def test_equals_the_printed_rule(unit_vectors, epsilon):
    embeddings, labels = unit_vectors(20), torch.arange(20) % 6
    similarity = embeddings @ embeddings.T
    positive, negative = set(), set()
    for i in range(20):
        same = [k for k in range(20) if k != i and labels[k] == labels[i]]
        other = [k for k in range(20) if labels[k] != labels[i]]
        weakest, strongest = min(similarity[i, same]), max(similarity[i, other])
        positive |= {(i, k) for k in same if similarity[i, k] - epsilon < strongest}
        negative |= {(i, k) for k in other if similarity[i, k] + epsilon > weakest}
    found = multi_similarity(embeddings, labels, epsilon)
    assert set(zip(*(part.tolist() for part in found.positive), strict=True)) == positive
    assert set(zip(*(part.tolist() for part in found.negative), strict=True)) == negative


def test_equals_the_peer(unit_vectors):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    embeddings, labels = unit_vectors(40, dim=8), torch.arange(40) // 4
    a1, p, a2, n = miners.MultiSimilarityMiner(0.1)(embeddings, labels)
    found = multi_similarity(embeddings, labels)
    for ours, theirs in ((found.positive, (a1, p)), (found.negative, (a2, n))):
        pairs = [
            set(zip(*(part.tolist() for part in side), strict=True)) for side in (ours, theirs)
        ]
        assert pairs[0] == pairs[1]


def test_pairs_that_are_not_numbers_stay(unit_vectors):
    embeddings, labels = unit_vectors(6), torch.arange(6) // 2
    embeddings[0] = torch.nan
    found = multi_similarity(embeddings, labels)
    assert (0, 1) in zip(*(part.tolist() for part in found.positive), strict=True)
    assert (0, 5) in zip(*(part.tolist() for part in found.negative), strict=True)


def test_is_what_the_loss_mines_for_itself(unit_vectors):
    embeddings, labels = unit_vectors(24), torch.arange(24) // 3
    loss = MultiSimilarityLoss()
    c = loss.comparisons(embeddings, labels)
    kept, _ = informative(c, 0.1)
    assert kept.sum() == len(multi_similarity(embeddings, labels).positive.anchor)


def test_a_wide_epsilon_keeps_all_pairs_of_anchors_that_have_both(unit_vectors):
    labels = torch.tensor([0, 0, 1, 1, 2])
    found = multi_similarity(unit_vectors(5), labels, epsilon=3.0)
    assert len(found.positive.anchor) == same_class(labels).sum()
    assert len(found.negative.anchor) == other_class(labels)[:4].sum()  # the last has no positive
