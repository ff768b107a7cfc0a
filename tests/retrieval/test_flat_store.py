"""FlatStore against the plain double loop: order, ties, filters, whatever the rows look
like."""

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.store import FlatStore


def rows(count, dim=16, seed=0, *, unit=True):
    made = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True) if unit else made + 5


def by_hand(vectors, query, k, allowed):
    """The nearest by float64 distances, one row at a time; ties by the lower id."""
    pairs = []
    for row in allowed:
        left = query.astype(np.float64)
        right = vectors[row].astype(np.float64)
        pairs.append((np.linalg.norm(left - right), row))
    return [row for _, row in sorted(pairs)[:k]]


@pytest.mark.parametrize(("count", "unit"), [(3, True), (40, False), (5000, True), (5000, False)])
def test_finds_what_the_double_loop_finds(count, unit):
    vectors = rows(count, unit=unit)
    queries = rows(3, seed=1, unit=unit)
    found = FlatStore(vectors).search(queries, 4)
    for query, ids in zip(queries, found.ids.tolist(), strict=True):
        assert [id for id in ids if id >= 0] == by_hand(vectors, query, 4, range(count))


@pytest.mark.parametrize("copies", [10, 300, 3000])
def test_equal_rows_come_in_the_order_of_their_ids(copies):
    """More duplicates than candidates: the proposal cannot settle it, and says so."""
    vectors = np.concatenate([np.repeat(rows(1), copies, axis=0), rows(3000, seed=2)])
    order = np.random.default_rng(0).permutation(len(vectors))
    found = FlatStore(vectors[order]).search(rows(1), 8)
    assert found.ids[0].tolist() == np.flatnonzero(order < copies)[:8].tolist()
    assert (found.distances[0] == 0).all()


def test_rows_nearer_to_each_other_than_the_product_can_tell_are_told_apart():
    """Three hundred rows within 1e-6: their products in float32 are noise, so no few candidates
    settle it."""
    rng = np.random.default_rng(3)
    crowd = rows(1) + 1e-6 * rng.standard_normal((300, 16)).astype(np.float32)
    vectors = np.concatenate([crowd, rows(3000, seed=2)])[rng.permutation(3300)]
    query = rows(1)
    assert FlatStore(vectors).search(query, 8).ids[0].tolist() == by_hand(
        vectors, query[0], 8, range(3300)
    )


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5, 0.95])
def test_a_filter_gives_the_nearest_of_those_that_pass(share):
    vectors = rows(4000)
    query = rows(1, seed=1)
    chosen = np.random.default_rng(0).random(4000) < share
    among = np.flatnonzero(chosen)
    found = FlatStore(vectors).search(query, 5, among=among)
    assert found.ids[0].tolist() == by_hand(vectors, query[0], 5, among)


def test_where_more_is_asked_than_there_is_ids_end_in_minus_one():
    store = FlatStore(rows(4))
    found = store.search(rows(1), 3, among=np.array([0, 2]))
    assert found.ids[0, 2] == -1 and found.distances[0, 2].isinf()
    assert store.search(rows(1), 2, among=np.array([], int)).ids.tolist() == [[-1, -1]]


def test_rows_of_length_1_are_multiplied_where_they_lie(tmp_path):
    """A memory map larger than memory must not be copied."""
    np.save(tmp_path / "vectors.npy", rows(1000))
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    store = FlatStore(mapped)
    store.search(rows(1), 3)
    assert store.gallery.proposal.rows.data_ptr() == mapped.ctypes.data


def test_errors_name_the_value():
    store = FlatStore(rows(10))
    with pytest.raises(ConfigError, match="k = 0"):
        store.search(rows(1), 0)
    with pytest.raises(DataError, match="rows 0"):
        store.search(np.full((1, 16), np.nan, np.float32), 1)
