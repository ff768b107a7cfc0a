"""DAML against its authors' objective, written out one triplet at a time."""

import pytest
import torch
from tests.methods.build import DESCENT, OneBatch, build, on_vectors
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import BatchAllTripletLoss, TripletLoss
from vicinal.methods import DAML
from vicinal.models import Embedder

LABELS = torch.tensor([0, 1, 0, 1, 2, 3])
LOSS = TripletLoss(1.0, normalize=False, blocks=True)


def a_batch():
    inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    return Batch(3 * inputs, LABELS, torch.arange(6))


def objective(method, inputs, reg, adv):
    """J over features divided by their mean length."""
    length = sum(x.norm() for x in inputs) / 6
    head = method.embedder.head
    hard = regular = adversary = metric = 0
    for a, p, n in ((0, 2, 4), (1, 3, 5)):
        y, y_p, y_n = (inputs[row] / length for row in (a, p, n))
        made = method.generator.layers(torch.cat([y, y_p, y_n]))
        hard = hard + ((made - y) ** 2).sum() / 2
        regular = regular + ((made - y_n) ** 2).sum() / 2
        z, z_p, z_n = head(inputs[a]), head(inputs[p]), head(length * made)
        excess = ((z - z_p) ** 2).sum() - ((z - z_n) ** 2).sum() + method.loss.margin
        adversary = adversary + torch.clamp(-excess, min=0) / 4
        metric = metric + torch.clamp(excess, min=0) / 4
    return hard + reg * regular + adv * adversary + metric, metric, adversary


@pytest.mark.parametrize("margin", [-30.0, 30.0])  # on either side of the hinge
def test_generator_and_head_descend_the_authors_objective(margin):
    loss = TripletLoss(margin, normalize=False, blocks=True)
    method = on_vectors(DAML(pretrain=0, reg=0.7, adv=0.4), loss, 5, 4)
    expected, metric, adversary = objective(method, a_batch().inputs, 0.7, 0.4)
    head = list(method.embedder.head.parameters())
    generator = list(method.generator.parameters())
    gradients = grad(expected, [*head, *generator])
    before = [value.detach().clone() for value in head]
    found = method(a_batch())
    for name, value in (("loss", expected), ("metric", metric), ("adversary", adversary)):
        assert_close(found.scalars[name], value.detach(), rtol=1e-4, atol=1e-6)
    assert (adversary > 0) == (margin < 0)
    for value, old, gradient in zip(head, before, gradients, strict=False):
        assert_close(value, old - 0.1 * gradient, rtol=1e-4, atol=1e-6)
    for value, gradient in zip(generator, gradients[2:], strict=True):
        assert_close(value.grad, gradient, rtol=1e-4, atol=1e-6)


def test_first_the_loss_trains_the_network_then_it_stays():
    network = torch.nn.Linear(5, 5)
    network.width = 5
    method = build(DAML(pretrain=1), Embedder(network, 4), LOSS, OneBatch(6), DESCENT).train()
    weights = [network.weight.detach().clone()]
    for _ in range(2):
        method(a_batch())
        weights.append(network.weight.detach().clone())
    assert not torch.equal(*weights[:2]) and torch.equal(*weights[1:])


def test_a_fifth_of_a_run_is_the_loss_alone():
    assert on_vectors(DAML(), LOSS, 5, 4, steps=100).acts_from == 20


@pytest.mark.parametrize("loss", [BatchAllTripletLoss(), TripletLoss()])
def test_other_tuples_are_rejected(loss):
    with pytest.raises(ConfigError, match=r"blocks \[a; p; n\].*sampler=triplets"):
        on_vectors(DAML(), loss, 5, 4)
