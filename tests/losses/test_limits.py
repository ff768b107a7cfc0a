"""What becomes of losses at the ends of their dials, where classes have collapsed, beside each
other, and with weights."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    AngularLoss,
    ArcFaceLoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    CircleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    DiscriminativeDeepMetricLoss,
    HardExemplarLoss,
    HPHNLoss,
    ImprovedLiftedStructureLoss,
    ImprovedNPairLoss,
    ImprovedProxyNCALoss,
    InfoNCELoss,
    InstanceLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    NPairLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    RankedListLoss,
    SemiHardTripletLoss,
    SigmoidLoss,
    SoftTripleLoss,
    SubCenterArcFaceLoss,
    SupervisedContrastiveLoss,
    TupletMarginLoss,
)

LABELS = torch.arange(12) // 3  # each row has 2 positives and 9 negatives
SHARP = {"lambda1": None, "lambda2": None, "epsilon": None, "similarity": "distance"}


@pytest.fixture
def embeddings(rng):
    return torch.randn(12, 4, generator=rng, dtype=torch.float64).requires_grad_()


def gradient_of(value, embeddings):
    return torch.autograd.grad(value, embeddings)[0]


@pytest.mark.parametrize(
    "loss",
    [
        *(
            AdaptiveNeighborhoodLoss(500.0, 500.0, radius=radius, squared=True, **SHARP)
            for radius in ("gamma", "exact")
        ),
        AngularLoss(80.0, normalize=False, n_pair=True),
        *(kind(4, 4, scale=1e4) for kind in (ArcFaceLoss, CosFaceLoss, SubCenterArcFaceLoss)),
        CircleLoss(gamma=1e5),
        DiscriminativeDeepMetricLoss(),
        ImprovedLiftedStructureLoss(gamma1=1e4, gamma2=1e4),
        ImprovedNPairLoss(gamma=1e3, offset=5.0),
        ImprovedProxyNCALoss(4, 4, gamma=1e4, normalize=False),
        InfoNCELoss(1e-4),
        InstanceLoss(4, 4, scale=1e4),
        *(LiftedStructureLoss(form=form, normalize=False) for form in ("original", "smooth")),
        MultiSimilarityLoss(beta=5000.0, epsilon=None),
        NormalizedSoftmaxLoss(4, 4, temperature=1e-3),
        NPairLoss(),
        ProxyAnchorLoss(4, 4, alpha=5000.0),
        ProxyNCALoss(4, 4, temperature=1e-3, normalize=False),
        ProxyNCALoss(4, 4, temperature=1e-3, normalize=False, full_softmax=True),
        RankedListLoss(temperature=1e4),
        SigmoidLoss(1e4),
        SoftTripleLoss(4, 4, scale=5000.0, gamma=1e-6),
        SupervisedContrastiveLoss(0.01, normalize=False),
        TupletMarginLoss(scale=1e4),
    ],
    ids=repr,
)
def test_stays_finite_where_a_plain_exponential_overflows(loss, embeddings):
    rows = (1e3 * embeddings.detach()).float().requires_grad_()
    value = loss(rows, LABELS)
    assert value.isfinite() and gradient_of(value, rows).isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [
        *(
            AdaptiveNeighborhoodLoss(radius=radius, lambda1=0.3, lambda2=0.4, epsilon=None)
            for radius in ("gamma", "exact")
        ),
        BatchAllTripletLoss(),
        BatchAllTripletLoss(soft=True),
        ContrastiveLoss(2.0),
        HardExemplarLoss(),
        ImprovedLiftedStructureLoss(),
        InfoNCELoss(),
        LiftedStructureLoss(),
        LiftedStructureLoss(form="smooth"),
        MultiSimilarityLoss(epsilon=None),
        SemiHardTripletLoss(1.0),
        SigmoidLoss(),
    ],
    ids=repr,
)
def test_a_weight_counts_a_pair_as_often(loss, embeddings):
    c = loss.comparisons(embeddings.detach(), LABELS)
    of_positives = torch.tensor([3, 2])
    of_negatives = torch.tensor([1, 2, 3] * 4)
    if isinstance(loss, HardExemplarLoss):  # a row that is compared twice changes B
        c = replace(c, negative=torch.full_like(c.negative, 0.1))
    weights = (of_positives.expand(12, 2).double(), of_negatives.expand(12, 12).double())
    weighted = replace(c, positive_weights=weights[0], negative_weights=weights[1])
    positive = torch.arange(2).repeat_interleave(of_positives)
    negative = torch.arange(12).repeat_interleave(of_negatives)
    listed = replace(
        c,
        positive=c.positive[:, positive],
        keep_positive=c.keep_positive[:, positive],
        negative=c.negative[:, negative],
        keep_negative=c.keep_negative[:, negative],
        partner=None if c.partner is None else c.partner[:, positive],
    )
    assert_close(loss.core(weighted).sums, loss.core(listed).sums)


@pytest.mark.parametrize(
    "loss",
    [
        BatchHardTripletLoss(),
        HPHNLoss(5.0),
        LiftedStructureLoss(form="min"),
        SemiHardTripletLoss(1.0, rule="nearest_else_farthest"),
    ],
    ids=repr,
)
def test_the_weights_of_the_chosen_pairs_multiply(loss, embeddings):
    """The weights of a row are all alike, and those of the two ends of a pair."""
    c = loss.comparisons(embeddings.detach(), LABELS)
    of_class = torch.tensor([2.0, 3.0, 5.0, 7.0]).double()[LABELS, None]
    weights = (of_class.expand_as(c.positive), of_class.square().expand_as(c.negative))
    weighted = replace(c, positive_weights=weights[0], negative_weights=weights[1])
    expected = of_class[:, 0] ** 3 * loss.core(c).sums
    assert_close(loss.core(weighted).sums, expected)


def test_weights_of_supervised_contrastive_loss(embeddings):
    """A positive's multiplies its term, a negative's its exponential."""
    loss = SupervisedContrastiveLoss()
    c = loss.comparisons(embeddings.detach(), LABELS)
    weights = torch.arange(1.0, 25.0, dtype=torch.float64).view(12, 2)
    twos = torch.full_like(c.negative, 2.0)
    weighted = replace(c, positive_weights=weights, negative_weights=twos)
    apart = c.negative.masked_fill(~c.keep_negative, -torch.inf)
    everyone = torch.cat([c.positive, apart, apart], dim=1) / 0.1
    terms = everyone.logsumexp(dim=1, keepdim=True) - c.positive / 0.1
    assert_close(loss.core(weighted).sums, (weights * terms).mean(dim=1))
