"""Gradient caching: the gradients of the whole batch, for every loss, with the activations of one
chunk."""

import copy
import inspect

import numpy as np
import pytest
import torch
from tests.methods.build import OneBatch, build
from torch import nn
from torch.autograd import grad

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.losses import LOSSES, MultiSimilarityLoss, NPairLoss
from vicinal.methods import HDML, CrossBatchMemory, Plain
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import EfficientNetLite, Embedder, SmallConvNet, TwoStreamEmbedder
from vicinal.models.embedder import check_chunks

ROWS = 5  # does not divide the batch
# Blocks of triplets, pairs of classes and halves with pairs among them: fits the layout of any
# loss.
LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 4, 5])
SGD = OptimizerConfig(
    name="sgd", learning_rate=1.0, momentum=0.0, weight_decay=0.0, schedule="constant"
)


class Convolutions(nn.Module):
    """A network without batch norm; with dropout where asked."""

    width = 8

    def __init__(self, dropout=0.0):
        super().__init__()
        self.calls = []
        self.layers = nn.Sequential(
            *(
                nn.Conv2d(1, 8, 3),
                nn.GroupNorm(2, 8),
                nn.GELU(),
                nn.Conv2d(8, 8, 3),
                nn.Dropout(dropout),
            )
        )

    def forward(self, inputs):
        self.calls.append(len(inputs))
        return self.layers(inputs)


def embedders(**options):
    torch.manual_seed(0)
    whole = Embedder(Convolutions(**options), 4)
    parts = copy.deepcopy(whole)
    parts.chunk = ROWS
    return whole, parts


def batch():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(len(LABELS), 1, 8, 8, generator=generator) + LABELS.view(-1, 1, 1, 1) / 3
    return Batch(inputs, LABELS, torch.arange(len(LABELS)), largest_class=2)


def loss_named(name):
    kind = LOSSES[name]
    values = {"classes": 6, "dim": 4, "seed": 0}
    torch.manual_seed(2)
    return kind(
        **{key: value for key, value in values.items() if key in inspect.signature(kind).parameters}
    )


def assert_same(found, expected, tolerance=1e-5):
    """Equal to ``tolerance`` of the largest entry of all; some gradients are 0 but for rounding."""
    found, expected = (
        torch.cat([tensor.detach().flatten() for tensor in all_]) for all_ in (found, expected)
    )
    torch.testing.assert_close(
        found, expected, rtol=0, atol=tolerance * float(expected.abs().max())
    )


@pytest.mark.parametrize("name", [*LOSSES, "memory"])
def test_a_plain_step_has_the_gradients_of_the_whole_batch(name):
    parameters = []
    values = []
    for embedder in embedders():
        loss = MultiSimilarityLoss() if name == "memory" else loss_named(name)
        kind = CrossBatchMemory(size=32, warmup=0) if name == "memory" else Plain()
        method = build(
            kind,
            embedder.train(),
            loss,
            OneBatch(len(LABELS)),
            SGD,
            labels=LABELS.numpy(),
            steps=10,
        )
        values.append(float(method(batch()).scalars["loss"]))
        parameters.append(
            [p.grad for p in (*embedder.parameters(), *loss.parameters()) if p.grad is not None]
        )
        assert any(gradient.any() for gradient in parameters[-1])
    assert_same(parameters[1], parameters[0])
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_steps_of_hdml_are_those_of_the_whole_batch():
    gradients = []
    scalars = []
    for embedder in embedders():
        torch.manual_seed(3)
        settings = HDML(window=1, alpha=1.0, beta=1.0)
        method = build(
            settings,
            embedder.train(),
            NPairLoss(),
            OneBatch(len(LABELS)),
            SGD,
            labels=np.arange(6),
            steps=10,
        )
        for group in (
            group for optimizer in method.optimizers.values() for group in optimizer.param_groups
        ):
            group["lr"] = (
                0.0  # the second step, which has a window behind it, starts from the same networks
            )
        scalars.append(
            [float(value) for _ in range(2) for value in method.step(batch()).scalars.values()]
        )
        modules = (embedder, method.generator, method.classifier)
        gradients.append(
            [parameter.grad for module in modules for parameter in module.parameters()]
        )
    assert scalars[1] == pytest.approx(scalars[0], rel=1e-5, abs=1e-6)
    assert_same(gradients[1], gradients[0])


def test_each_chunk_runs_once_forward_and_once_for_the_gradient():
    _, parts = embedders()
    loss = parts.train().features(batch().inputs).logsumexp((0, 1))
    assert parts.backbone.calls == [5, 5, 2]
    loss.backward()
    assert parts.backbone.calls == [5, 5, 2, 2, 5, 5]  # from the last to the first


def test_dropout_is_the_same_in_both_passes():
    """The gradient is that of the outputs: found again by hand with the same masks."""
    _, parts = embedders(dropout=0.5)
    parts.train()
    weights = list(parts.backbone.parameters())
    torch.manual_seed(4)
    before = torch.get_rng_state()
    found = grad(parts.features(batch().inputs).logsumexp((0, 1)), weights)
    after = torch.get_rng_state()
    torch.manual_seed(4)
    by_hand = torch.cat([Embedder.features(parts, chunk) for chunk in batch().inputs.split(ROWS)])
    assert_same(found, grad(by_hand.logsumexp((0, 1)), weights))
    assert not torch.equal(before, after) and torch.equal(after, torch.get_rng_state())


def test_batch_norms_are_rejected_unless_frozen():
    with pytest.raises(
        ConfigError, match=r"training\.chunk=5 .* 2 norms .*backbone\.blocks\.1.*freeze_norm=true"
    ):
        check_chunks(Embedder(SmallConvNet(1, (4, 8)), 4).eval(), 5)
    streams = (Embedder(SmallConvNet(1, (4,)), 4) for _ in range(2))
    with pytest.raises(ConfigError, match=r"query\.backbone"):
        check_chunks(TwoStreamEmbedder(*streams), 5)
    frozen = Embedder(EfficientNetLite(freeze_norm=True), 4).eval()
    check_chunks(frozen, 5)
    assert not frozen.training and not frozen.backbone.training
    head = Embedder(Convolutions(), 4)
    head.head = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))  # sees the whole batch
    check_chunks(head, 5)
    own = Embedder(Convolutions(), 4)
    own.backbone.layers[1] = nn.InstanceNorm2d(8)
    check_chunks(own, 5)
    own.backbone.layers[1] = nn.InstanceNorm2d(8, track_running_stats=True)
    with pytest.raises(ConfigError, match="1 norms"):
        check_chunks(own, 5)
