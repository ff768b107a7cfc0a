"""Near duplicates are the connected groups of near pairs."""

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.retrieval import duplicates as module
from vicinal.retrieval.duplicates import close_pairs, near_duplicates


def test_groups_are_linked_through_others_and_the_surest_comes_first():
    line = np.array([0.0, 0.9, 1.8, 10.0, 10.1, 20.0, 30.0, 30.5])[:, None].astype(np.float32)
    found = near_duplicates(line, 1.0)
    assert [rows for rows, _ in found.groups] == [[3, 4], [6, 7], [0, 1, 2]]
    np.testing.assert_allclose(found.groups[0][1], [0.1, 0.1], atol=1e-6)
    np.testing.assert_allclose(found.groups[2][1], [0.9, 0.9, 0.9], atol=1e-6)
    assert found.pairs == 4


def test_nothing_near_gives_no_group():
    assert near_duplicates(np.eye(4, dtype=np.float32), 0.5).groups == []
    assert near_duplicates(np.empty((0, 3), dtype=np.float32), 0.5).groups == []


def test_planted_copies_are_found_among_many():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 32)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    copies = rows[:40] + 1e-3 * rng.normal(size=(40, 32)).astype(np.float32)
    found = near_duplicates(np.concatenate([rows, copies]), 0.05)
    assert sorted(rows for rows, _ in found.groups) == [[place, 500 + place] for place in range(40)]


@pytest.fixture
def rows():
    """Seventy rows of length 1 in bunches, some of them equal."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(10, 6))[rng.integers(0, 10, 70)] + 0.2 * rng.normal(size=(70, 6))
    found[[5, 69]] = found[3]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def by_hand(rows, limit):
    """Each pair by itself, in float64."""
    exact, found = rows.astype(np.float64), []
    for left in range(len(rows)):
        for right in range(left + 1, len(rows)):
            distance = np.linalg.norm(exact[left] - exact[right])
            if distance <= limit:
                found.append((left, right, distance))
    return found


@pytest.mark.parametrize("limit", [0.3, 0.9])
@pytest.mark.parametrize(("block", "width"), [(1024, 8192), (16, 16), (7, 30), (23, 9)])
def test_pairs_are_those_of_the_double_loop(limit, block, width, rows, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_WIDTH", width)
    found = close_pairs(rows, limit)
    expected = by_hand(rows, limit)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [pair[:2] for pair in expected]
    np.testing.assert_allclose(found.distances, [pair[2] for pair in expected], atol=1e-6)


def test_a_distance_of_zero_finds_equal_rows(rows):
    found = close_pairs(rows, 0.0)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(3, 5), (3, 69), (5, 69)]


def test_what_float32_products_cannot_tell_is_decided_by_differences():
    """Far from the origin a product is wrong by more than these rows differ."""
    rng = np.random.default_rng(0)
    rows = (1000 * rng.normal(size=64) + 0.02 * rng.normal(size=(40, 64))).astype(np.float32)
    found, expected = close_pairs(rows, 0.22), by_hand(rows, 0.22)
    assert 50 < len(expected) < 730
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [pair[:2] for pair in expected]


def test_too_many_pairs_are_refused_with_their_number(rows):
    with pytest.raises(DataError, match="distance of 3 lie more than 100 pairs of 70 rows"):
        close_pairs(rows, 3.0, most=100)


def test_progress_counts_rows_and_a_memory_map_is_read_in_place(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 30)
    np.save(tmp_path / "rows.npy", rows)
    seen = []
    found = close_pairs(np.load(tmp_path / "rows.npy", mmap_mode="r"), 0.3, progress=seen.append)
    assert seen == [30, 60, 70] and len(found) == len(close_pairs(rows, 0.3))


def test_nothing_and_nonsense(rows):
    assert len(close_pairs(rows[:0], 1.0)) == 0 and len(close_pairs(rows[:1], 1.0)) == 0
    for distance in (-1.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match="distance of 0 or more"):
            close_pairs(rows, distance)
    rows[7] = np.nan
    with pytest.raises(DataError, match="rows 7"):
        close_pairs(rows, 0.1)
