"""Values and gradients of losses that pytorch-metric-learning has as well."""

import math

import pytest
import torch
from tests.listed import triplets
from torch.autograd import grad
from torch.nn.functional import normalize
from torch.testing import assert_close

from vicinal.losses import (
    AngularLoss,
    ArcFaceLoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    CircleLoss,
    CosFaceLoss,
    FastAPLoss,
    InfoNCELoss,
    IntraPairVarianceLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    PNPLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SemiHardTripletLoss,
    SmoothAPLoss,
    SoftTripleLoss,
    SubCenterArcFaceLoss,
    SupervisedContrastiveLoss,
    ThresholdConsistentMarginLoss,
    TupletMarginLoss,
)

peers = pytest.importorskip("pytorch_metric_learning.losses")
from pytorch_metric_learning import miners, reducers  # noqa: E402

LABELS = torch.arange(16) // 4
MEAN = reducers.MeanReducer()


@pytest.fixture
def embeddings(rng):
    return torch.randn(16, 8, generator=rng, dtype=torch.float64).requires_grad_()


def assert_equal(ours, theirs, *inputs, rtol=1e-6, atol=1e-5):
    assert_close(ours.double(), theirs.double(), rtol=rtol, atol=atol)
    gradients = [grad(value, inputs, retain_graph=True) for value in (ours, theirs)]
    assert_close(*gradients, rtol=rtol, atol=atol)


def mined(loss, miner):
    return lambda rows, labels: loss(rows, labels, miner(rows, labels))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AngularLoss(40.0), peers.AngularLoss(alpha=40)),
        (BatchAllTripletLoss(0.2, normalize=True), peers.TripletMarginLoss(0.2)),
        *(
            (
                BatchHardTripletLoss(0.1, normalize=True, soft=soft),
                mined(
                    peers.TripletMarginLoss(0.1, smooth_loss=soft, reducer=MEAN),
                    miners.BatchHardMiner(),
                ),
            )
            for soft in (False, True)
        ),
        (
            SemiHardTripletLoss(squared=False),
            mined(peers.TripletMarginLoss(0.2), miners.TripletMarginMiner(0.2, "semihard")),
        ),
        (CircleLoss(), peers.CircleLoss(m=0.4, gamma=80)),
        (FastAPLoss(), peers.FastAPLoss()),
        (InfoNCELoss(0.07), peers.NTXentLoss(0.07)),
        (IntraPairVarianceLoss(), peers.IntraPairVarianceLoss()),
        (LiftedStructureLoss(), peers.LiftedStructureLoss()),
        (LiftedStructureLoss(form="smooth"), peers.GeneralizedLiftedStructureLoss()),
        (MultiSimilarityLoss(epsilon=None), peers.MultiSimilarityLoss(2, 50, 0.5)),
        (
            MultiSimilarityLoss(),
            mined(peers.MultiSimilarityLoss(2, 50, 0.5), miners.MultiSimilarityMiner(0.1)),
        ),
        *(
            (PNPLoss(variant, anchor=True), peers.PNPLoss(variant=variant))
            for variant in ("O", "Ds", "Dq", "Iu", "Ib")
        ),
        (SmoothAPLoss(anchor=True), peers.SmoothAPLoss()),
        (SupervisedContrastiveLoss(), peers.SupConLoss(temperature=0.1)),
        (ThresholdConsistentMarginLoss(), peers.ThresholdConsistentMarginLoss()),
        (TupletMarginLoss(math.radians(5.73)), peers.TupletMarginLoss()),
    ],
    ids=lambda value: repr(value) if hasattr(value, "core") else "",
)
def test_equals_the_peer(ours, theirs, embeddings):
    """Along the sphere: some peers do not put all rows on it."""
    rows = normalize(embeddings, dim=1)
    assert_equal(ours(rows, LABELS), theirs(rows, LABELS), embeddings)


@pytest.mark.parametrize(
    ("ours", "theirs", "proxies"),
    [
        (ArcFaceLoss(4, 8, margin=math.radians(28.6)), peers.ArcFaceLoss(4, 8), "W"),
        (CosFaceLoss(4, 8), peers.CosFaceLoss(4, 8), "W"),
        (
            SubCenterArcFaceLoss(4, 8, margin=math.radians(28.6)),
            peers.SubCenterArcFaceLoss(num_classes=4, embedding_size=8),
            "W",
        ),
        (NormalizedSoftmaxLoss(4, 8), peers.NormalizedSoftmaxLoss(4, 8, temperature=0.05), "W"),
        (
            SoftTripleLoss(4, 8, centers=3, merge=0.0),
            peers.SoftTripleLoss(4, 8, centers_per_class=3, la=20, gamma=0.1, margin=0.01),
            "fc",
        ),
        (ProxyAnchorLoss(4, 8), peers.ProxyAnchorLoss(4, 8), "proxies"),
        (ProxyNCALoss(4, 8, full_softmax=True), peers.ProxyNCALoss(4, 8, softmax_scale=1), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_losses_with_proxies_equal_the_peer(ours, theirs, proxies, embeddings):
    rows = ours.double().proxies.detach().reshape(-1, 8)
    columns = proxies in ("W", "fc")
    getattr(theirs, proxies or "proxies").data = (rows.T if columns else rows).clone()
    assert_equal(ours(embeddings, LABELS), theirs(embeddings, LABELS), embeddings)


@pytest.mark.parametrize("classes", [None, 4])
def test_margin_loss_of_triplets_equals_the_peer_also_in_its_boundaries(classes, embeddings):
    listed = triplets(LABELS)
    ours = MarginLoss(classes).double()
    peer = peers.MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=classes).double()
    with torch.no_grad():
        peer.beta.copy_(ours.boundary)  # 1.2 as float32 has it
    value = ours.on_triplets(embeddings, listed, labels=LABELS)
    theirs = peer(embeddings, LABELS, tuple(listed))
    learned = ours.boundary if classes is None else ours.deviations
    found = grad(value, learned, retain_graph=True)[0]
    expected = grad(theirs, peer.beta, retain_graph=True)[0]
    assert_close(found.reshape(-1), expected)
    assert_equal(value, theirs, embeddings)
