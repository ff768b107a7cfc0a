"""The meta-gradient in two ways: slopes in forward mode, and straight autograd."""

import pytest
import torch
from torch import nn
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.losses import (
    ContrastiveLoss,
    MarginLoss,
    TripletLoss,
)
from vicinal.methods.ala.assessment import PairScoring, TripletScoring
from vicinal.methods.ala.meta_gradient import Metric, slopes
from vicinal.models import Embedder, ResNet, SmallConvNet

RATES = (0.3, 1.7)  # of backbone and head: a virtual step that took one for both would be seen


class Network(nn.Module):
    """A small backbone with batch norm."""

    def __init__(self, width=6):
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width), nn.Tanh())

    def forward(self, inputs):
        return self.layers(inputs)


class Episode:
    """An embedder, an optimizer with two rates, training and validation rows."""

    def __init__(self, scoring, *, train=True):
        torch.manual_seed(0)
        self.embedder = Embedder(Network(), 4).double().train(train)
        self.scoring = scoring.double()
        parts = self.embedder.backbone.parameters(), self.embedder.head.parameters()
        groups = [
            {"params": list(part), "lr": rate} for part, rate in zip(parts, RATES, strict=True)
        ]
        self.metric = Metric(self.embedder, torch.optim.SGD(groups))
        self.inputs = torch.randn(8, 5, dtype=torch.float64)
        self.labels = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
        self.unseen = torch.randn(4, 5, dtype=torch.float64)
        self.unseen_labels = torch.tensor([4, 5, 4, 5])
        self.weights = torch.rand(len(self.losses()[0]), dtype=torch.float64)

    def losses(self):
        embeddings = self.embedder.embed(self.metric.features(self.inputs))
        return self.scoring(embeddings, self.labels).losses, embeddings

    def validation(self, tried):
        embeddings = self.metric.embed(tried, self.unseen)
        return self.scoring(embeddings, self.unseen_labels).losses.sum()

    def direction(self, losses):
        gradients = grad(self.weights @ losses, self.metric.leaves, retain_graph=True)
        steps = self.metric.scaled(list(gradients))
        tried = {name: value.requires_grad_() for name, value in self.metric.moved(steps).items()}
        return self.metric.scaled(list(grad(self.validation(tried), list(tried.values()))))

    def by_forward_mode(self):
        losses, embeddings = self.losses()
        tangents = self.metric.tangents(self.direction(losses), self.inputs)
        return -slopes(self.scoring, embeddings, tangents, self.labels)

    def by_autograd(self):
        """∂L_va/∂w with the virtual step in the graph, as the paper's authors must have done it."""
        weights = self.weights.clone().requires_grad_()
        losses, _ = self.losses()
        gradients = grad(weights @ losses, self.metric.leaves, create_graph=True)
        tried = dict(zip(self.metric.parameters(), self._stepped(gradients), strict=True))
        return grad(self.validation(tried), weights)[0]

    def _stepped(self, gradients):
        names = self.metric.parameters()
        rates = [RATES[1] if name.startswith("head.") else RATES[0] for name in names]
        return [
            leaf - rate * g
            for leaf, rate, g in zip(self.metric.leaves, rates, gradients, strict=True)
        ]


SCORINGS = {
    "triplet": lambda: TripletScoring(TripletLoss(margin=2.0, squared=False, normalize=False)),
    "triplet on the sphere": lambda: TripletScoring(TripletLoss(margin=1.0)),
    "contrastive": lambda: TripletScoring(ContrastiveLoss(margin=2.0)),
    "contrastive pairs": lambda: PairScoring(ContrastiveLoss(margin=2.0)),
    "margin": lambda: TripletScoring(MarginLoss()),
}


@pytest.mark.parametrize(
    ("name", "train"), [*((name, True) for name in SCORINGS), ("triplet", False)]
)
def test_all_routes_agree_with_autograd_through_the_step(name, train):
    episode = Episode(SCORINGS[name](), train=train)
    reference = episode.by_autograd()
    assert reference.abs().max() > 1e-4
    assert_close(episode.by_forward_mode(), reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "backbone",
    [lambda: SmallConvNet(channels=3, widths=(4, 8)), lambda: ResNet(18, freeze_norm=True)],
)
def test_forward_mode_passes_through_the_real_backbones(backbone):
    torch.manual_seed(0)
    embedder = Embedder(backbone(), 8).train()
    metric = Metric(embedder, torch.optim.SGD(embedder.parameters(), lr=0.01))
    inputs = torch.randn(4, 3, 32, 32)
    z = embedder.embed(metric.features(inputs))
    direction = [
        torch.randn_like(leaf) * leaf.norm() / leaf.numel() ** 0.5 for leaf in metric.leaves
    ]
    cotangent = torch.zeros_like(z, requires_grad=True)  # ∇(c·z) is linear in c
    gradients = grad(z, metric.leaves, cotangent, create_graph=True)
    (exact,) = grad(gradients, cotangent, direction)
    assert_close(metric.tangents(direction, inputs), exact, rtol=1e-3, atol=1e-3)
