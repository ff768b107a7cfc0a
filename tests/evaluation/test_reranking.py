"""Re-ranking against the paper written out densely, one row at a time."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.compact import rerank
from vicinal.evaluation.neighbors import neighbors


def clusters(count, classes, dim=8, noise=0.6, seed=0):
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    rows = torch.randn(classes, dim, generator=rng)[labels] + noise * torch.randn(
        count, dim, generator=rng
    )
    return torch.nn.functional.normalize(rows, dim=1), labels


def by_hand(rows, k1, k2, lambda_):
    """Zhong et al. 2017, Section 3, with sets and full matrices: d* of all pairs."""
    rows = rows.double().numpy()
    squares = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    apart = squares / squares.max(axis=1, keepdims=True)
    count = len(rows)
    ranked = [
        sorted(range(count), key=lambda g, p=p: (g != p, squares[p, g], g)) for p in range(count)
    ]

    def reciprocal(p, k):
        return {g for g in ranked[p][: k + 1] if p in ranked[g][: k + 1]}

    encoded = np.zeros((count, count))
    for p in range(count):
        first = reciprocal(p, k1)
        members = set(first)
        for q in first:
            more = reciprocal(q, round(k1 / 2))
            if len(first & more) > 2 / 3 * len(more):
                members |= more
        for g in members:
            encoded[p, g] = np.exp(-apart[p, g])
        encoded[p] /= encoded[p].sum()
    encoded = np.stack(
        [np.mean([encoded[g] for g in ranked[p][:k2]], axis=0) for p in range(count)]
    )
    found = np.empty((count, count))
    for p in range(count):
        for g in range(count):
            jaccard = (
                1
                - np.minimum(encoded[p], encoded[g]).sum()
                / np.maximum(encoded[p], encoded[g]).sum()
            )
            found[p, g] = (1 - lambda_) * jaccard + lambda_ * apart[p, g]
    return found


@pytest.mark.parametrize(("k1", "k2", "lambda_"), [(7, 3, 0.3), (4, 1, 0.0), (20, 6, 1.0)])
@pytest.mark.parametrize("asked", [None, 10])
def test_equals_the_dense_oracle(k1, k2, lambda_, asked):
    rows, _ = clusters(60, 9)
    expected = by_hand(rows, k1, k2, lambda_)
    np.fill_diagonal(expected, np.inf)
    expected = expected[:asked, asked:]
    settings = {"k1": k1, "k2": k2, "lambda_": lambda_}
    settings["gallery"] = None if asked is None else rows[asked:]
    whole = rerank(rows[:asked], 59, **settings)
    parts = rerank(rows[:asked], 59, **settings, chunk_bytes=1)
    assert torch.equal(parts.ids, whole.ids)  # whatever the size of a chunk
    there = 59 if asked is None else 50
    distances = whole.distances[:, :there]
    assert_allclose(distances, np.sort(expected, axis=1)[:, :there], atol=1e-5)
    ids = whole.ids[:, :there].numpy()
    assert_allclose(np.take_along_axis(expected, ids, 1), distances, atol=1e-5)
    assert (whole.ids[:, there:] == -1).all() and whole.distances[:, there:].isinf().all()


def test_the_published_parameters_raise_precision_on_clusters():
    rows, labels = clusters(400, 20, dim=16, noise=1.3)
    plain = neighbors(rows, 19).ids
    better = rerank(rows, 19).ids
    right = [(labels[ids] == labels[:, None]).double().mean() for ids in (plain, better)]
    assert right[1] > right[0] + 0.02


def test_what_cannot_be_reranked_is_rejected():
    rows, _ = clusters(10, 2)
    for bad in ({"k2": 0}, {"k2": 22}, {"lambda_": 1.5}, {"lambda_": float("nan")}):
        with pytest.raises(ConfigError, match="k2 from 1 to k1"):
            rerank(rows, 3, **bad)
    with pytest.raises(ConfigError, match="poincare"):
        rerank(rows, 3, metric="poincare")
    with pytest.raises(ConfigError, match="k of at least 1"):
        rerank(rows[:1], 3)
    with pytest.raises(DataError, match="rows 1"):
        rerank(rows.index_fill(0, torch.tensor([1]), torch.nan), 3)
