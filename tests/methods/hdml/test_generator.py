"""The generator and the classifier that guards labels: shapes, terms, and gradients that cross
nowhere."""

import torch
from torch.autograd import grad

from vicinal.methods.hdml.synthesis import FeatureClassifier, Generator


def test_the_authors_norm_stands_after_the_activation():
    names = [type(layer).__name__ for layer in Generator(4, 8, norm=True).layers]
    assert names == ["Linear", "ReLU", "BatchNorm1d", "Linear"]


def test_real_features_teach_only_the_classifier_and_synthetic_ones_only_the_generator(rng):
    classifier = FeatureClassifier(5, torch.arange(3))
    features = torch.randn(6, 5, generator=rng).requires_grad_()
    labels = torch.arange(6) % 3
    own = classifier.own_loss(features, labels)
    assert grad(own, features, allow_unused=True)[0] is None
    gradients = grad(own, list(classifier.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    cost = classifier.label_costs(features, labels).sum()
    crossing = grad(cost, list(classifier.parameters()), retain_graph=True, allow_unused=True)
    assert crossing == (None,) * 2
    assert grad(cost, features)[0].abs().sum() > 0


def test_label_costs_are_cross_entropies_by_the_labels_of_training(rng):
    classifier = FeatureClassifier(5, torch.tensor([30, 10, 20, 10]))
    features = torch.randn(3, 5, generator=rng)
    numbers = torch.tensor([0, 1, 2])
    costs = classifier.label_costs(features, torch.tensor([10, 20, 30]))
    wanted = torch.nn.functional.cross_entropy(
        classifier.layer(features), numbers, reduction="none"
    )
    torch.testing.assert_close(costs, wanted)
