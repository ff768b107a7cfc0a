"""Metrix against the paper's sums, written out one mixture at a time."""

import numpy as np
import pytest
import torch
from tests.methods.build import OneBatch, build, on_vectors
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.losses import ContrastiveLoss, MultiSimilarityLoss, ProxyAnchorLoss
from vicinal.losses.loss import reduce
from vicinal.methods import Metrix
from vicinal.methods.metrix import mixed_comparisons, mixtures
from vicinal.models import Embedder

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 3])
FACTOR = 0.3


def cosine(x, y):
    return (x / x.norm()) @ (y / y.norm())


def of_sums(compared, alpha, beta, low, high):
    """The two logarithms of multi-similarity and Proxy-Anchor over one anchor's mixtures."""
    pull = sum(FACTOR * torch.exp(-alpha * (s - low)) for s in compared)
    push = sum((1 - FACTOR) * torch.exp(beta * (s - high)) for s in compared)
    return torch.log1p(torch.as_tensor(pull)), torch.log1p(torch.as_tensor(push))


def mixtures_of(members, embeddings, labels, label):
    """v = λ x + (1 - λ) x' of members x and each sample x' of another class, one at a time."""
    others = [row for row, other in zip(embeddings, labels, strict=True) if other != label]
    return [FACTOR * embeddings[i] + (1 - FACTOR) * other for i in members for other in others]


def multi_similarity(embeddings, labels, with_anchor):
    total = 0
    for a, label in enumerate(labels):
        mates = [i for i in range(len(labels)) if labels[i] == label and i != a]
        mixed = mixtures_of([a] if with_anchor else mates, embeddings, labels, label)
        compared = [cosine(embeddings[a], v) for v in mixed]
        pull, push = of_sums(compared, 2, 10, 0.5, 0.5)
        total = total + pull / 2 + push / 10
    return total / len(labels)


def contrastive(embeddings, labels, with_anchor):
    """The mean over mixtures, each once a positive and once a negative."""
    total = count = 0
    unit = embeddings / embeddings.norm(dim=1, keepdim=True)
    for a, label in enumerate(labels):
        mates = [i for i in range(len(labels)) if labels[i] == label and i != a]
        for v in mixtures_of([a] if with_anchor else mates, embeddings, labels, label):
            apart = (unit[a] - v / v.norm()).norm()
            total = total + FACTOR * apart**2 / 2
            total = total + (1 - FACTOR) * torch.relu(0.9 - apart) ** 2 / 2
            count += 2
    return total / count


def proxy_anchor(embeddings, labels, with_anchor, proxies):
    """A proxy is never mixed itself."""
    pulls = pushes = present = 0
    for label, proxy in enumerate(proxies):
        members = [i for i in range(len(labels)) if labels[i] == label]
        mixed = mixtures_of(members, embeddings, labels, label)
        compared = [cosine(proxy, v) for v in mixed]
        pull, push = of_sums(compared, 32, 32, 0.1, -0.1)
        pulls = pulls + pull
        pushes = pushes + push
        present += bool(members)
    return pulls / present + pushes / len(proxies)


@pytest.mark.parametrize("with_anchor", [False, True])
@pytest.mark.parametrize(
    ("loss", "formula"),
    [
        (MultiSimilarityLoss(2.0, 10.0, 0.5), multi_similarity),
        (ContrastiveLoss(0.9, normalize=True), contrastive),
        (ProxyAnchorLoss(classes=5, dim=4).double(), proxy_anchor),
    ],
)
def test_mixtures_cost_what_the_formula_says(loss, formula, with_anchor):
    torch.manual_seed(0)
    embeddings = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    learned = [embeddings, *loss.parameters()]
    factor = torch.tensor(FACTOR, dtype=torch.float64)
    mixed = mixtures(embeddings, torch.arange(7).expand(7, 7), factor).view(7, 7, 4)
    there = LABELS[:, None] != LABELS
    found = mixed_comparisons(
        loss, embeddings, LABELS, mixed, there, factor, torch.tensor(with_anchor)
    )
    ours = reduce(loss.core(found), "mean")
    by_hand = formula(embeddings, LABELS.tolist(), with_anchor, *learned[1:])
    values = [(one, *torch.autograd.grad(one, learned)) for one in (ours, by_hand)]
    assert_close(*values, rtol=1e-9, atol=1e-12)


def a_method(**settings):
    return on_vectors(Metrix(**settings), MultiSimilarityLoss(), 6, 4, rows=7)


def a_batch():
    rng = torch.Generator().manual_seed(1)
    return Batch(torch.randn(7, 6, generator=rng), LABELS, torch.arange(7))


def test_without_weight_a_step_is_that_of_the_loss():
    method = a_method(weight=0.0)
    plain = a_method().loss
    batch = a_batch()
    expected = plain(method.embedder.embed(batch.inputs), LABELS)
    scalars = method(batch).scalars
    assert scalars["loss"] == scalars["real_loss"] == expected and scalars["mixed_loss"] > 0


@pytest.mark.parametrize("hardest", [None, 2])
def test_where_all_is_linear_it_does_not_matter_what_is_mixed(hardest):
    """A linear head maps mixtures of inputs to mixtures of embeddings."""
    methods = [
        a_method(mix=mix, hardest=hardest or 7) for mix in ("inputs", "features", "embeddings")
    ]
    results = [method(a_batch()) for method in methods]
    for method, result in zip(methods[1:], results[1:], strict=True):
        assert_close(result.scalars, results[0].scalars)
        assert_close(method.embedder.state_dict(), methods[0].embedder.state_dict())


def test_maps_are_mixed_before_they_are_pooled():
    """With maximum pooling that is not the same as mixing what was pooled."""
    torch.manual_seed(0)
    backbone = torch.nn.Conv2d(1, 6, 1)
    backbone.width = 6
    losses = {}
    for mix in ("features", "embeddings"):
        torch.manual_seed(0)
        embedder = Embedder(backbone, 4, pooling="max")
        method = build(Metrix(mix), embedder, MultiSimilarityLoss(), OneBatch(7))
        batch = Batch(torch.randn(7, 1, 3, 3), LABELS, torch.arange(7))
        losses[mix] = method.train()(batch).scalars["mixed_loss"]
    assert losses["features"] != losses["embeddings"]


def test_partners_are_the_nearest_of_other_classes():
    method = a_method(hardest=2)
    embeddings = torch.tensor([0.0, 0.1, 0.2, 1.0, 1.1, 0.5, 2.1])
    embeddings = torch.stack([embeddings.cos(), embeddings.sin()], dim=1)
    columns, there = method.partners(embeddings, LABELS)
    assert columns.tolist() == [[5, 3], [5, 3], [5, 3], [5, 2], [5, 2], [2, 1], [4, 3]]
    assert there.all()
    few = torch.tensor([0, 0, 0, 0, 0, 0, 1])
    assert method.partners(embeddings, few)[1].sum(dim=1).tolist() == [1] * 6 + [2]


def test_the_step_decides_what_is_drawn():
    method = a_method()
    drawn = [method.prepare(a_batch()).extras["mixing"] for _ in range(2)]
    assert torch.equal(*drawn)
    factors = []
    for step in range(2000):
        method.schedule.last_epoch = step
        factors.append(method.prepare(a_batch()).extras["mixing"].numpy())
    factor, with_anchor = np.array(factors).T
    assert set(with_anchor) == {0, 1} and with_anchor.mean() == pytest.approx(0.5, abs=0.05)
    # The variance of Beta(2, 2) is 1/20.
    assert factor.mean() == pytest.approx(0.5, abs=0.02)
    assert factor.var() == pytest.approx(0.05, abs=0.005)
