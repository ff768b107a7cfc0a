"""The plain method against the three lines it stands for."""

import copy

import pytest
import torch
from tests.methods.build import DESCENT, OneBatch, build
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.losses import InfoNCELoss, MultiSimilarityLoss
from vicinal.methods.plain import MomentumQueue, Plain
from vicinal.models import Embedder, Identity


@pytest.fixture
def batch(rng):
    return Batch(torch.randn(4, 5, generator=rng), torch.tensor([0, 0, 1, 1]), torch.arange(4))


def test_a_step_is_embed_score_step(batch):
    embedder = Embedder(Identity(5), 3)
    before = copy.deepcopy(embedder)
    loss = MultiSimilarityLoss()
    method = build(Plain(), embedder, loss, OneBatch(4), DESCENT)
    result = method(batch)
    embeddings = before.embed(before.features(batch.inputs))
    value = loss(embeddings, batch.labels)
    value.backward()
    assert_close(result.scalars["loss"], value.detach())
    assert_close(result.embeddings, embeddings.detach())
    assert torch.equal(result.labels, batch.labels) and not result.embeddings.requires_grad
    for now, then in zip(embedder.parameters(), before.parameters(), strict=True):
        assert_close(now, then - 0.1 * then.grad)


class Faint(torch.nn.Module):
    """A loss whose gradient float16 cannot hold."""

    factor = 1e-9

    def forward(self, embeddings, labels):
        return self.factor * embeddings.square().sum()


def test_float16_learns_from_gradients_below_its_range_and_leaves_out_those_above(batch):
    backbone = torch.nn.Linear(5, 3)
    backbone.width = 3
    method = build(Plain(), Embedder(backbone), Faint(), OneBatch(4), DESCENT)
    exact = copy.deepcopy(method.embedder)
    method.loss(exact.embed(exact.features(batch.inputs)), batch.labels).backward()
    method.embedder.accelerate(torch.float16)
    method.scaler = torch.amp.GradScaler("cpu")
    method.loss.factor = 1e6
    before = backbone.weight.clone()
    method(batch)
    assert torch.equal(backbone.weight, before)
    assert method.training_state()["scaler"]["scale"] == 2**15
    method.loss.factor = Faint.factor
    method(batch)
    gradient = exact.backbone.weight.grad
    assert_close(backbone.weight.grad, gradient, rtol=0.01, atol=1e-11)


def test_momentum_contrast_step_by_step(batch, rng):
    """Queries against the keys of all steps so far; the encoder of keys follows slowly."""
    method = build(
        MomentumQueue(momentum=0.9),
        Embedder(Identity(5), 3),
        InfoNCELoss(0.5),
        OneBatch(4),
        DESCENT,
        labels=range(12),
    )
    query = copy.deepcopy(method.embedder)
    key = copy.deepcopy(query)
    loss = InfoNCELoss(0.5)
    queue = torch.empty(0, 3)
    for step in range(3):
        inputs = torch.randn(4, 5, generator=rng)
        result = method(Batch(inputs, batch.labels, torch.arange(4)))
        queries, keys = (net.embed(net.features(inputs)) for net in (query, key))
        queue = torch.cat([queue, keys.detach()])
        own = torch.arange(4) + 4 * step
        value = loss(queries, batch.labels, queue, batch.labels.repeat(step + 1), own)
        query.zero_grad()
        value.backward()
        assert_close(result.scalars["loss"], value.detach())
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                fast -= 0.1 * fast.grad
                slow.copy_(0.9 * slow + 0.1 * fast)
    for ours, byhand in ((method.embedder, query), (method.momentum_encoder, key)):
        for now, then in zip(ours.parameters(), byhand.parameters(), strict=True):
            assert_close(now, then)
    assert not any(p.requires_grad for p in method.momentum_encoder.parameters())
