"""Gradients that are not those of the value, and boundaries of triplets, as
pytorch-metric-learning has them. Values are those of the printed formulas, other gradients those of
finite differences."""

import pytest
import torch
from tests.listed import triplets
from torch.autograd import grad
from torch.nn.functional import normalize
from torch.testing import assert_close

from vicinal.losses import CircleLoss, MarginLoss

peers = pytest.importorskip("pytorch_metric_learning.losses")

LABELS = torch.arange(16) // 4


@pytest.fixture
def embeddings(rng):
    return torch.randn(16, 8, generator=rng, dtype=torch.float64).requires_grad_()


def assert_equal(ours, theirs, *inputs):
    assert_close(ours, theirs)
    assert_close(*(grad(value, inputs, retain_graph=True) for value in (ours, theirs)))


def test_weights_of_circle_loss_pass_no_gradient(embeddings):
    rows = normalize(embeddings, dim=1)
    theirs = peers.CircleLoss(m=0.4, gamma=80)(rows, LABELS)
    assert_equal(CircleLoss()(rows, LABELS), theirs, embeddings)


@pytest.mark.parametrize("classes", [None, 4])
def test_margin_loss_of_triplets_equals_the_peer_also_in_its_boundaries(classes, embeddings):
    listed = triplets(LABELS)
    ours = MarginLoss(classes).double()
    peer = peers.MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=classes).double()
    with torch.no_grad():
        peer.beta.copy_(ours.boundary)  # 1.2 as float32 has it
    value = ours.on_triplets(embeddings, listed, LABELS)
    theirs = peer(embeddings, LABELS, tuple(listed))
    learned = ours.boundary if classes is None else ours.deviations
    found = grad(value, learned, retain_graph=True)[0]
    expected = grad(theirs, peer.beta, retain_graph=True)[0]
    assert_close(found.reshape(-1), expected)
    assert_equal(value, theirs, embeddings)
