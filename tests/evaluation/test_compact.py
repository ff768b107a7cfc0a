"""Smaller embeddings: what codes keep, what rescoring restores, and what is counted; re-ranking
against the paper written out densely, one row at a time."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import compact, compact_scores, evaluate, rerank
from vicinal.evaluation.compact import binary, check_compact, int8
from vicinal.evaluation.neighbors import neighbors


@pytest.fixture(scope="module")
def data():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 30
    return torch.randn(30, 20, generator=rng)[labels] + torch.randn(
        300, 20, generator=rng
    ) + 1, labels


def test_int8_is_wrong_by_half_a_step_at_most(data):
    rows, _ = data
    stored = int8(rows)
    assert stored.vector_bytes == rows.shape[1]
    step = (rows.amax(0) - rows.amin(0)) / 255
    assert ((stored.rows - rows).abs() <= 0.501 * step).all()
    constant = torch.ones(4, 2)
    assert torch.equal(int8(constant).rows, constant)


@pytest.mark.parametrize("dim", [1, 8, 20])
def test_binary_keeps_a_bit_for_a_number(data, dim):
    rows = data[0][:, :dim]
    stored = binary(rows)
    above = rows > rows.mean(dim=0)
    assert stored.vector_bytes == np.packbits(above.numpy(), axis=1).shape[1]
    for column in range(dim):
        means = [rows[above[:, column] == side, column].mean() for side in (False, True)]
        expected = torch.where(above[:, column], means[1], means[0])
        torch.testing.assert_close(stored.rows[:, column], expected)


@pytest.mark.parametrize("gallery", [False, True])
def test_scores_are_those_of_the_decoded_rows(data, gallery, monkeypatch):
    monkeypatch.setattr(compact, "_CACHE_BYTES", 40_000)
    monkeypatch.setattr(compact, "_LEAST", 10)
    rows, labels = data
    split = {"gallery": rows[90:], "gallery_labels": labels[90:]} if gallery else {}
    asked = (rows[:90], labels[:90]) if gallery else (rows, labels)
    found = {
        (row.dims, row.stored, row.refined): row
        for row in compact_scores(
            *asked, **split, dims=[8, 8], quantize=["int8", "binary"], rerank=True
        )
    }
    stored = [("float32", ""), ("float32", "re-ranked")]
    stored += [(name, again) for name in ("int8", "binary") for again in ("", "rescored")]
    assert list(found) == [(size, *each) for size in (8, 20) for each in stored]
    for size in (20, 8):
        unit = torch.nn.functional.normalize(rows[:, :size], dim=1)
        kept = unit[90:] if gallery else unit
        names = labels[90:] if gallery else labels
        sought = {"gallery": kept, "gallery_labels": names} if gallery else {}
        scores = evaluate(unit[: len(asked[0])], asked[1], **sought, clustering=False)
        whole = found[size, "float32", ""]
        assert (whole.recall_at_1, whole.map_at_r) == (scores["recall@1"], scores["map@r"])
        decoded = binary(kept).rows
        apart = torch.cdist(unit[: len(asked[0])].double(), decoded.double())
        if not gallery:
            apart.fill_diagonal_(torch.inf)
        right = (names[apart.argmin(dim=1)] == asked[1]).double().mean()
        assert found[size, "binary", ""].recall_at_1 == pytest.approx(float(right))
        assert found[size, "binary", ""].recall_at_1 < found[size, "binary", "rescored"].recall_at_1
        assert abs(found[size, "int8", "rescored"].map_at_r - scores["map@r"]) < 1e-3
        assert found[size, "float32", "re-ranked"].map_at_r > scores["map@r"]
    bits = found[20, "binary", "rescored"]
    assert (bits.vector_bytes, bits.rescoring_bytes) == (3, 80)
    assert bits.total_bytes == 3 * len(kept) + 240
    assert all(row.query_seconds > 0 for row in found.values())


def test_a_class_as_large_as_the_gallery_is_scored():
    rows = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    found = compact_scores(
        rows, torch.zeros(12, dtype=torch.long), quantize=["int8", "binary"], rerank=True
    )
    assert {row.map_at_r for row in found} == {1.0}


def test_what_cannot_be_measured_is_rejected_at_once():
    for bad in (0, -1, 65):
        with pytest.raises(
            ConfigError, match=f"from 1 to the 64 numbers of an embedding, got {bad}"
        ):
            check_compact([bad], [], dim=64)
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        check_compact([], ["int9"], dim=64)
    with pytest.raises(ConfigError, match="Poincaré"):
        check_compact([32], [], rerank=True, dim=64, metric="poincare")
    check_compact([32], [], dim=64, metric="poincare")


# -- re-ranking -----------------------------------------------------------------------------------


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
