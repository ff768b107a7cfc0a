"""Exact neighbors against all pairs in float64, and in the places where a product of float32 goes
wrong."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize, pad
from torch.testing import assert_close

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import neighbors as exact
from vicinal.evaluation.neighbors import Gallery, Proposal, neighbors


def by_hand(queries, k, gallery=None, metric="euclidean"):
    """All distances in float64 from differences, sorted by (distance, id), padded with -1."""
    rows = queries.double()
    others = rows if gallery is None else gallery.double()
    if metric == "cosine":
        apart = 1 - normalize(rows, dim=1) @ normalize(others, dim=1).T
    else:
        apart = (rows[:, None] - others).square().sum(dim=2).sqrt()
    if gallery is None:
        apart.fill_diagonal_(math.inf)
    distances, ids = pad(apart, (0, k), value=math.inf).sort(dim=1, stable=True)
    ids = ids.where(distances.isfinite(), -1)
    return ids[:, :k], distances[:, :k].float()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("apart", [False, True])
# By candidates, by all rows, all there are, more than there are.
@pytest.mark.parametrize("k", [1, 5, 40, 119, 130])
def test_equals_all_pairs(rng, k, apart, metric):
    rows = torch.randn(120, 6, generator=rng)
    gallery = torch.randn(125, 6, generator=rng) if apart else None
    found = neighbors(rows, k, gallery=gallery, metric=metric)
    ids, distances = by_hand(rows, k, gallery, metric)
    assert torch.equal(found.ids, ids)
    assert_close(found.distances, distances)


def ties(rng):
    return torch.cartesian_prod(*[torch.arange(5.0)] * 3)[torch.randperm(125, generator=rng)]


def duplicates(rng):
    rows = torch.randn(200, 8, generator=rng)
    rows[[50, 51, 199]] = rows[3].clone()
    return rows


def more_duplicates_than_candidates(rng):
    return (torch.arange(400.0) % 2).unsqueeze(1).expand(-1, 3)


def near(rng):
    return torch.randn(150, 16, generator=rng) * torch.logspace(-4, 0, 150).unsqueeze(1)


def one_far(rng):
    return torch.cat([torch.randn(100, 4, generator=rng), torch.full((1, 4), 1e5)])


@pytest.mark.parametrize(
    ("draw", "scale", "offset"),
    [
        (ties, 1, 0),
        (duplicates, 1, 0),
        (more_duplicates_than_candidates, 1, 0),
        (near, 1, 0),
        (near, 1, 1e4),  # where a float32 product loses their order
        (one_far, 1e-30, 0),
        (one_far, 1e30, 0),
    ],
)
def test_rows_that_a_product_mixes_up_are_told_apart(rng, draw, scale, offset):
    rows = offset + scale * draw(rng)
    found = neighbors(rows, 10)
    ids, distances = by_hand(rows, 10)
    assert torch.equal(found.ids, ids)
    assert_close(found.distances, distances)


@pytest.mark.parametrize("chunk_bytes", [1, 3000, 10**6])
def test_the_answer_does_not_depend_on_the_chunks(rng, chunk_bytes):
    rows = torch.randn(300, 12, generator=rng).round(decimals=1)  # rounded, so that ties occur
    whole = neighbors(rows, 6)
    chunks = list(Gallery(rows).search(rows, 6, without=torch.arange(300), chunk_bytes=chunk_bytes))
    assert [chunk.start for chunk in chunks] == [
        sum(len(c.ids) for c in chunks[:i]) for i in range(len(chunks))
    ]
    assert torch.equal(torch.cat([chunk.ids for chunk in chunks]), whole.ids)
    assert torch.equal(torch.cat([chunk.distances for chunk in chunks]), whole.distances)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_gallery_on_the_disk_is_searched_in_blocks_to_the_last_digit(
    rng, metric, monkeypatch, tmp_path
):
    rows = torch.randn(300, 12, generator=rng).round(decimals=1)
    rows[120:130] = rows[20:30]  # in another block
    own = torch.arange(300)
    excluded = torch.zeros(300, dtype=torch.bool).index_fill(0, torch.arange(40, 140), True)
    np.save(tmp_path / "rows.npy", rows.numpy())
    lying = torch.from_numpy(np.load(tmp_path / "rows.npy", mmap_mode="c"))
    cases = [{}, {"without": own}, {"without": excluded}]
    whole = [Gallery(rows, metric).nearest(rows, 6, **how) for how in cases]
    prepared = []
    original = exact._prepared

    def watched(rows, metric):
        prepared.append(len(rows))
        return original(rows, metric)

    monkeypatch.setattr(exact, "_BLOCK_BYTES", 4 * 12 * 35)
    monkeypatch.setattr(exact, "_prepared", watched)
    for how, expected in zip(cases, whole, strict=True):
        found = Gallery(lying, metric).nearest(rows, 6, **how)
        assert torch.equal(found.ids, expected.ids)
        assert torch.equal(found.distances, expected.distances)
    assert max(prepared) == 35


def test_zero_rows_have_a_cosine_of_their_own(rng):
    rows = torch.randn(60, 4, generator=rng)
    rows[[7, 20]] = 0
    found = neighbors(rows, 59, metric="cosine")
    assert found.ids[7, 0] == 20
    assert found.distances[7].tolist() == pytest.approx([0] + [1] * 58)


def test_what_cannot_be_asked_is_rejected():
    rows = torch.ones(3, 2)
    with pytest.raises(ConfigError, match="k = 0"):
        neighbors(rows, 0)
    with pytest.raises(DataError, match="at least one row"):
        neighbors(rows, 1, gallery=rows[:0])
    bad = rows.index_fill(0, torch.tensor([2]), -math.inf)
    with pytest.raises(DataError, match=r"embeddings must be finite, but 1 of 3 .* rows 2\."):
        neighbors(bad, 1)
    with pytest.raises(DataError, match="gallery must be finite"):
        neighbors(rows, 1, gallery=bad)
    with pytest.raises(ConfigError, match="did you mean 'cosine'"):
        inspect.unwrap(neighbors)(rows, 1, metric="cosin")


def test_memory_stays_within_the_chunk(rng, monkeypatch):
    largest = 0
    original = exact.Proposal.__call__

    def watched(self, queries):
        nonlocal largest
        values, reach = original(self, queries)
        largest = max(largest, values.numel() * values.element_size())
        return values, reach

    monkeypatch.setattr(exact.Proposal, "__call__", watched)
    rows = torch.randn(512, 4, generator=rng)
    list(Gallery(rows).search(rows, 3, chunk_bytes=2**14))
    assert 2**13 < largest <= 2**14


@pytest.mark.gpu
def test_the_device_does_not_change_the_answer(rng):
    rows = torch.randn(3000, 32, generator=rng)
    rows[100:200] = rows[:100]
    here = neighbors(rows, 20)
    there = neighbors(rows.cuda(), 20)
    assert torch.equal(here.ids, there.ids.cpu())
    assert_close(here.distances, there.distances.cpu())


@pytest.mark.parametrize("dim", [1, 16, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_differences_of_values_are_right_within_the_bound(rng, dim, dtype, offset):
    length = torch.rand(300, 1, generator=rng, dtype=dtype)
    gallery = offset + torch.randn(300, dim, generator=rng, dtype=dtype) * length
    queries = offset + torch.randn(20, dim, generator=rng, dtype=dtype)
    proposal = Proposal(gallery)
    values, bound = proposal(queries)
    values = values[:, :300]
    bound = bound.unsqueeze(1)

    unit_queries, unit_gallery = (
        (rows - proposal.center) / proposal.scale for rows in (queries, gallery)
    )
    true = unit_gallery.square().sum(dim=1) - 2 * unit_queries @ unit_gallery.T
    error = (values - true).abs()
    assert (2 * error < bound).all()
    assert (bound < 1e-2 * true.std(dim=1, keepdim=True)).all()


def test_a_user_who_lowers_the_precision_of_products_gets_them_in_float64():
    rows = torch.ones(5, 3)
    assert Proposal(rows).rows.dtype == torch.float32
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert Proposal(rows).rows.dtype == torch.float64
    finally:
        torch.set_float32_matmul_precision(before)


def test_rows_that_are_left_out_are_not_found(rng):
    rows = torch.randn(200, 6, generator=rng)
    own = torch.tensor([5, 9])
    found = neighbors(rows[own], 4, gallery=rows, own=own)
    assert torch.equal(found.ids, neighbors(rows, 4).ids[own])
    excluded = torch.ones(200, dtype=torch.bool)
    excluded[[3, 60, 199]] = False
    for k in (1, 5):
        (chunk,) = Gallery(rows).search(rows[:1], k, without=excluded)
        ids, _ = by_hand(rows[:1], 3, rows[~excluded])
        expected = torch.tensor([3, 60, 199])[ids][:, :k]
        assert torch.equal(chunk.ids[:, : expected.shape[1]], expected)
        assert (chunk.ids[:, 3:] == -1).all() and chunk.distances[:, 3:].isinf().all()


def test_where_few_rows_are_left_no_other_is_compared(rng, monkeypatch):
    rows = torch.randn(200, 6, generator=rng)
    excluded = torch.ones(200, dtype=torch.bool)
    excluded[[3, 60, 199]] = False
    compared = []
    apart = exact._apart

    def counted(block, part):
        compared.append(len(part))
        return apart(block, part)

    proposed = []
    propose = exact.Proposal.__call__

    def seen(proposal, block):
        values, reach = propose(proposal, block)
        proposed.append(values.shape[1])
        return values, reach

    monkeypatch.setattr(exact, "_apart", counted)
    gallery = Gallery(rows)
    gallery.nearest(rows[:1], 5, without=excluded)
    assert compared == [3]
    gallery.nearest(rows[:1], 2)  # from here on proposed by products, as where some are left out
    few = torch.arange(200) % 5 > 0
    monkeypatch.setattr(exact.Proposal, "__call__", seen)
    ids, _ = by_hand(rows[:1], 3, rows[~few])
    assert torch.equal(gallery.nearest(rows[:1], 3, without=few).ids, 5 * ids)
    assert proposed == [64], "40, in blocks of 64"
    none = Gallery(rows).nearest(rows[:1], 5, without=torch.ones(200, dtype=torch.bool))
    assert (none.ids == -1).all() and none.distances.isinf().all()


def test_float64_rows_are_told_apart_below_float32():
    rows = 1 + torch.arange(60, dtype=torch.float64).unsqueeze(1) * 1e-12
    assert neighbors(rows, 2).ids[10].tolist() == [9, 11]
    assert neighbors(rows, 1).ids[0].tolist() == [1]
