"""The map of a collection is computed once per generation and kept beside it; groups by k-means,
whose number may be chosen."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

from vicinal.errors import ConfigError
from vicinal.retrieval import overview as module
from vicinal.retrieval.overview import (
    cluster,
    cluster_page,
    collection_map,
    principal_components,
)


@pytest.fixture
def vectors():
    """Sixty rows in three bunches."""
    rng = np.random.default_rng(0)
    return (5 * np.eye(12)[np.repeat([0, 1, 2], 20)] + rng.normal(size=(60, 12))).astype(np.float32)


@pytest.fixture
def snapshot(collect, vectors):
    return collect(vectors, ["abc"[row // 20] for row in range(60)], id=range(1, 120, 2))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A projection in no time, in place of the few steps that other tests take."""
    monkeypatch.setattr(module, "tsne", lambda rows, *, seed: rows[:, :2].clone())


def among_their_own(found):
    """The share of items whose nearest on the map is of their bunch."""
    apart = np.linalg.norm(found.positions[:, None] - found.positions, axis=2)
    np.fill_diagonal(apart, np.inf)
    return (apart.argmin(axis=1) // 20 == np.arange(60) // 20).mean()


def test_neighbors_stay_and_it_is_computed_once(snapshot, monkeypatch):
    first = collection_map(snapshot)
    assert first.ids.tolist() == list(range(1, 120, 2))
    assert first.positions.dtype == np.float32 and among_their_own(first) > 0.95
    monkeypatch.setattr(module, "tsne", lambda *_, **__: pytest.fail("computed again"))
    assert_array_equal(collection_map(snapshot).positions, first.positions)


def test_of_a_large_collection_a_part_is_shown_and_it_does_not_change(snapshot, monkeypatch):
    monkeypatch.setattr(module, "POINTS", 25)
    first = collection_map(snapshot)
    assert len(first.ids) == 25 and (np.diff(first.ids) > 0).all()
    (snapshot.folder / module.NAME).unlink()
    assert_array_equal(collection_map(snapshot).ids, first.ids)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_items_have_a_map_too(count, collect, vectors):
    found = collection_map(collect(vectors[:count], [None] * count))
    assert found.positions.shape == (count, 2) and np.isfinite(found.positions).all()


def test_rows_beyond_the_landmarks_lie_among_their_neighbors(snapshot, monkeypatch):
    monkeypatch.setattr(module, "LANDMARKS", 30)
    found = collection_map(snapshot)
    assert found.ids.tolist() == [item.id for item in snapshot.items]
    drawn = np.sort(module.drawn(60, 30))
    short = module.torch.from_numpy(principal_components(snapshot.vectors[drawn]))
    # landmarks are where they would be alone
    alone = module.tsne(short, seed=0).numpy()
    assert_allclose(found.positions[drawn], alone, atol=1e-3)
    assert among_their_own(found) > 0.9


def test_principal_components_keep_distances(vectors):
    found = principal_components(vectors)
    assert found.shape == (60, 12) and found.dtype == np.float32
    assert_allclose(pdist(found), pdist(vectors), atol=1e-4)
    assert principal_components(np.ones((60, 90))).shape == (60, 50)
    assert principal_components(np.random.default_rng(0).normal(size=(7, 90))).shape == (7, 7)


SIZES = [40, 30, 25, 20, 15, 10]


@pytest.fixture
def bunches():
    """Six bunches of falling size in eight dimensions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), SIZES)
    rows = 10 * np.eye(8)[labels] + 0.3 * rng.normal(size=(len(labels), 8))
    return rows.astype(np.float32), labels


def test_k_means_orders_groups_by_size_and_puts_the_typical_first(bunches):
    rows, labels = bunches
    found = cluster(rows, 6)
    assert [len(members) for members, _ in found] == SIZES
    for group, (members, spread) in enumerate(found):
        assert set(labels[members]) == {group} and (np.diff(spread) >= 0).all()
        far = np.linalg.norm(rows[members] - rows[labels == group].mean(axis=0), axis=1)
        assert_allclose(spread, far, rtol=1e-5)


def test_equal_rows_make_one_group_and_no_error():
    rows = np.ones((12, 3), dtype=np.float32)
    assert sum(len(members) for members, _ in cluster(rows, 3)) == 12


def test_groups_say_what_they_mostly_are(collect):
    line = np.array([[0], [0.1], [0.2], [9], [9.1], [9.3]])
    page = cluster_page(collect(line, ["a", "a", "b", "c", "c", None]), 2)
    every = cluster_page(collect(line, ["a", "a", "b", "c", "c", None]))
    assert [group.rows for group in page.groups] == [[1, 0, 2], [4, 3, 5]] and len(
        every.groups
    ) == 3
    with pytest.raises(ConfigError, match="--groups"):
        cluster_page(collect(line, [None] * 6))
    titles = "Group 1: 3 items, mostly a (2 of 3)", "Group 2: 3 items, mostly c (2 of 2)"
    assert tuple(group.title for group in page.groups) == titles
