"""GCA-HNG against its authors' formulas, written out one sample, edge and channel at a time."""

import math

import numpy as np
import pytest
import torch
from tests.methods.build import on_vectors
from torch.autograd import grad
from torch.nn.functional import gelu
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.errors import ConfigError, DataError
from vicinal.losses import NPairLoss
from vicinal.methods.gca_hng import GCAHNG, SampleGraph, by_class, combined_negatives

LABELS = torch.tensor([3, 7, 5, 3, 5, 7])


def normed(norm, x):
    return norm(gelu(x))


def attended(attention, h, labels, i):
    """Node i hears nodes of other classes, each head by itself, or nothing, of logit 0."""
    dim = len(h[0])
    q, k, v = attention.in_proj_weight.split(dim)
    bq, bk, bv = attention.in_proj_bias.split(dim)
    size = dim // attention.num_heads
    heads = []
    for head in range(attention.num_heads):
        part = slice(head * size, (head + 1) * size)
        asked = (q @ h[i] + bq)[part]
        weights, heard = [1.0], [torch.zeros(size, dtype=h[i].dtype)]
        for j, label in enumerate(labels):
            if label != labels[i]:
                weights.append(torch.exp(asked @ (k @ h[j] + bk)[part] / math.sqrt(size)))
                heard.append((v @ h[j] + bv)[part])
        heads.append(sum(w * x for w, x in zip(weights, heard, strict=True)) / sum(weights))
    return attention.out_proj(torch.cat(heads))


def graph_by_hand(graph, x, labels):
    n = len(x)
    h = list(x)
    centered = [row - row.mean() for row in x]
    e = {
        (i, j): centered[i] * centered[j] / (centered[i].norm() * centered[j].norm())
        for i in range(n)
        for j in range(n)
    }
    for layer in graph.layers:
        new = []
        for i in range(n):
            one = normed(layer.norm_nodes[1], h[i] + attended(layer.attention, h, labels, i))
            said = sum(gelu(layer.from_edges(e[i, j])) for j in range(n))
            one = normed(layer.norm_nodes[1], one + said)
            new.append(normed(layer.norm_nodes[1], one + layer.mix_nodes(one)))
        h = new
        ends = [gelu(layer.to_edges(row)) for row in h]
        for (i, j), edge in e.items():
            asked = layer.query(edge)
            logits = [asked @ layer.key(ends[at]) / math.sqrt(len(edge)) for at in (i, j)]
            weights = torch.stack(logits).softmax(0)
            mean = sum(w * layer.value(ends[at]) for w, at in zip(weights, (i, j), strict=True))
            edge = normed(layer.norm_edges[1], edge + mean)
            wide = normed(layer.mix_edges[2], layer.mix_edges[0](edge))
            e[i, j] = normed(layer.norm_edges[1], edge + layer.mix_edges[3](wide))
    pulls = graph.edge_norm(torch.stack([e[i, j] for i in range(n) for j in range(n)]))
    pulls = torch.sigmoid(graph.pull(pulls))
    named = graph.classify(graph.node_norm(torch.stack(h)))
    return named, pulls.view(n, n, -1)


def test_the_graph_is_that_of_loops(rng):
    torch.manual_seed(0)
    graph = SampleGraph(4, 3, layers=2, heads=2).double()
    x = torch.randn(6, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    found = graph(x, LABELS[:, None] == LABELS)
    expected = graph_by_hand(graph, x, LABELS.tolist())
    assert_close(found, expected)
    learned = [x, *(p for p in graph.parameters() if p.requires_grad)]
    ours, theirs = (grad(sum(y.sin().sum() for y in pair), learned) for pair in (found, expected))
    assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def combined_by_hand(rows, pulls, factor, draws):
    """For each anchor and class, r of the authors for each channel, one row after another."""
    classes, members, dim = rows.shape
    made = []
    for c in range(classes):
        for k in range(members):
            a = rows[c, k]
            reach = (a - rows[c, (k + 1) % members]).norm()
            for other in range(classes):
                for place in range(members):
                    n = rows[other, place]
                    apart = (n - a).norm()
                    if apart > reach:
                        weights = pulls[c * members + k, other * members + place] * factor
                        n = a + (n - a) * (reach + (apart - reach) * weights) / apart
                    if place:
                        n = n + draws[k, place] * (before - n)
                    before = n
                made.append(before)
    return torch.stack(made).view(classes * members, classes, dim)


@pytest.mark.parametrize("members", [2, 3])
def test_negatives_are_pulled_by_channels_and_combined(members, rng):
    rows = torch.randn(3, members, 4, generator=rng, dtype=torch.float64)
    pulls = torch.rand(3 * members, 3 * members, 4, generator=rng, dtype=torch.float64)
    draws = torch.rand(members, members, generator=rng, dtype=torch.float64)
    factor = torch.tensor(0.7, dtype=torch.float64)
    found = combined_negatives(rows, pulls, factor, draws)
    assert_close(found, combined_by_hand(rows, pulls, factor, draws))
    still = combined_negatives(rows, torch.ones_like(pulls), torch.ones_like(factor), 0 * draws)
    assert_close(still[0], rows[:, -1])


def a_method():
    method = GCAHNG(heads=2, layers=1)
    loss = NPairLoss(l2=0.01)
    return on_vectors(method, loss, 5, 4, normalize=False, labels=LABELS.tolist()).double()


def losses_by_hand(method, x, factor, draws):
    rows, _ = by_class(x, LABELS)
    anchors = rows.flatten(0, 1)
    own = [label for label in (3, 5, 7) for _ in range(2)]
    named, pulls = graph_by_hand(method.graph, anchors, own)
    place = torch.tensor([0, 0, 1, 1, 2, 2])
    node = torch.nn.functional.cross_entropy(named, place)
    synthetic = 0
    made = combined_by_hand(rows, pulls.detach(), factor, draws)
    lengths = torch.stack([made[i, c] @ made[i, c] for i in range(6) for c in range(3)]).mean()
    for i, anchor in enumerate(anchors):
        positive = anchors[i ^ 1] @ anchor
        negatives = [made[i, c] @ anchor for c in range(3) if c != place[i]]
        synthetic = synthetic - positive + torch.stack([positive, *negatives]).logsumexp(0)
        synthetic = synthetic + 0.01 / 4 * (anchor @ anchor + lengths)
    fixed = rows.detach()
    made = combined_by_hand(fixed, pulls, factor, draws)
    layer = method.classifier.layer
    soft = cosine = 0
    for i, anchor in enumerate(fixed.flatten(0, 1)):
        for c in range(3):
            logits = layer.weight.detach() @ made[i, c] + layer.bias.detach()
            soft = soft + logits.logsumexp(0) - logits[c]
            if c != place[i]:
                cosine = cosine + 1 - made[i, c] @ anchor / (made[i, c].norm() * anchor.norm())
    apart = sum(((pulls[i] - pulls[i].mean(0)) ** 2).sum() for i in range(6)) / 36
    parts = [20 * soft / 18, 20 * cosine / 18, 0.6 * (1 - apart.sqrt())]
    return node, synthetic / 6, parts


def test_a_step_descends_the_printed_losses(rng):
    method = a_method()
    x = torch.randn(6, 5, generator=rng, dtype=torch.float64)
    method.average_loss.last.fill_(2.0)
    method.generator_loss.last.fill_(30.0)
    head = method.embedder.head.weight
    rows = method.embedder.embed(x)
    draws = torch.from_numpy(np.random.default_rng([0, 0]).random((2, 2)))
    factor = math.exp(-5 / 2)
    node, synthetic, parts = losses_by_hand(method, rows, factor, draws)
    real = method.loss(rows, LABELS)
    weight = 1 - math.exp(-20 / 30)
    metric = real + weight * synthetic + node
    gradient = grad(metric, head, retain_graph=True)[0]
    graph = [p for p in method.graph.parameters() if p.requires_grad]
    of_graph = grad(node + sum(parts) / 2, graph, allow_unused=True)
    before = head.clone()
    result = method.step(Batch(x, LABELS, torch.arange(6)))
    for name, expected in (
        ("loss", metric),
        ("real_loss", real),
        ("synthetic_loss", synthetic),
        ("generator/node", node),
        *zip(("generator/soft", "generator/cosine", "generator/diversity"), parts, strict=True),
    ):
        assert_close(result.scalars[name], expected.detach())
    assert_close(before - head, 0.1 * gradient)
    for parameter, expected in zip(graph, of_graph, strict=True):
        assert_close(parameter.grad, expected, rtol=1e-6, atol=1e-9)


def test_in_the_first_epoch_no_negative_counts(rng):
    method = a_method()
    batch = Batch(torch.randn(6, 5, generator=rng).double(), LABELS, torch.arange(6))
    scalars = method(batch).scalars
    assert_close(
        scalars["loss"], scalars["real_loss"] + scalars["generator/node"], rtol=1e-4, atol=1e-4
    )
    assert scalars["hardness/lambda"] > 0.999
    assert method(batch).scalars["hardness/lambda"] < 0.999


def test_uneven_batches_and_heads_are_rejected():
    with pytest.raises(DataError, match="sampler=classes or sampler=pairs"):
        by_class(torch.ones(4, 2), torch.tensor([1, 1, 1, 2]))
    with pytest.raises(ConfigError, match="got 3"):
        on_vectors(GCAHNG(heads=3), NPairLoss(), 5, 4, labels=[3, 5])
