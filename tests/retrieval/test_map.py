"""The map of a collection is computed once per generation and kept beside it."""

import numpy as np
import pytest

from vicinal.retrieval import map as module
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.generations import publish
from vicinal.retrieval.map import collection_map, principal_components, stored_map
from vicinal.retrieval.store import Item


@pytest.fixture
def vectors():
    """Sixty rows in three bunches."""
    rng = np.random.default_rng(0)
    return (5 * np.eye(12)[np.repeat([0, 1, 2], 20)] + rng.normal(size=(60, 12))).astype(np.float32)


@pytest.fixture
def collection(tmp_path, vectors):
    items = [
        Item(id=2 * place + 1, path=f"{place}.png", label="abc"[place // 20]) for place in range(60)
    ]
    publish(tmp_path / "collection", items, vectors, dim=12)
    return CollectionDirectory.open(tmp_path / "collection")


@pytest.fixture
def quick(monkeypatch):
    """A projection in no time, for what does not depend on where things lie."""
    monkeypatch.setattr(module, "tsne", lambda rows, *, seed: rows[:, :2].clone())


def test_neighbors_in_the_collection_are_neighbors_on_the_map(collection):
    found = collection_map(collection.snapshot())
    assert found.ids.tolist() == list(range(1, 120, 2))
    assert found.positions.shape == (60, 2) and found.positions.dtype == np.float32
    apart = np.linalg.norm(found.positions[:, None] - found.positions, axis=2) + np.diag(
        np.full(60, np.inf)
    )
    assert (apart.argmin(axis=1) // 20 == np.arange(60) // 20).mean() > 0.95


def test_it_is_computed_once_and_read_afterwards(collection, monkeypatch):
    snapshot = collection.snapshot()
    assert stored_map(snapshot) is None
    first = collection_map(snapshot)
    monkeypatch.setattr(module, "tsne", lambda *_, **__: pytest.fail("computed again"))
    for again in (
        collection_map(snapshot),
        stored_map(CollectionDirectory.open(collection.path).snapshot()),
    ):
        np.testing.assert_array_equal(again.positions, first.positions)
        np.testing.assert_array_equal(again.ids, first.ids)
    assert not list(snapshot.folder.glob("*.part"))


def test_a_disk_that_takes_nothing_keeps_nobody_from_the_map(collection, quick, monkeypatch):
    def fails(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module, "write_arrays", fails)
    assert len(collection_map(collection.snapshot()).ids) == 60


def test_a_new_generation_has_its_own(collection, vectors, quick):
    collection_map(collection.snapshot())
    publish(
        collection.path,
        [Item(id=place, path=str(place), label=None) for place in range(8)],
        vectors[:8],
        dim=12,
    )
    snapshot = collection.snapshot()
    assert snapshot.generation == 2 and stored_map(snapshot) is None


@pytest.mark.parametrize("content", [b"", b"PK nonsense", None])
def test_a_damaged_one_is_made_again(content, collection, quick):
    snapshot = collection.snapshot()
    first = collection_map(snapshot)
    path = snapshot.folder / "map-t-sne.npz"
    if content is None:
        np.savez(path, ids=np.arange(3), positions=np.full((3, 2), np.nan, dtype=np.float32))
    else:
        path.write_bytes(content)
    assert stored_map(snapshot) is None
    np.testing.assert_array_equal(collection_map(snapshot).positions, first.positions)


def test_of_a_large_collection_a_part_is_shown_and_it_does_not_change(
    collection, quick, monkeypatch
):
    monkeypatch.setattr(module, "POINTS", 25)
    snapshot = collection.snapshot()
    first = collection_map(snapshot)
    assert len(first.ids) == 25 and (np.diff(first.ids) > 0).all()
    (snapshot.folder / "map-t-sne.npz").unlink()
    np.testing.assert_array_equal(collection_map(snapshot).ids, first.ids)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_items_have_a_map_too(count, tmp_path, vectors):
    items = [Item(id=place, path=str(place), label=None) for place in range(count)]
    publish(tmp_path / "few", items, vectors[:count], dim=12)
    found = collection_map(CollectionDirectory.open(tmp_path / "few").snapshot())
    assert found.positions.shape == (count, 2) and np.isfinite(found.positions).all()


def test_nothing_is_stored_for_a_generation_that_was_removed(collection, vectors, quick):
    snapshot = collection.snapshot()
    for _ in range(2):
        publish(collection.path, [Item(id=1, path="x", label=None)], vectors[:1], dim=12)
    assert not snapshot.folder.exists()
    assert len(collection_map(snapshot).ids) == 60 and not snapshot.folder.exists()


def test_principal_components_keep_distances(vectors):
    found = principal_components(vectors)
    assert found.shape == (60, 12) and found.dtype == np.float32
    np.testing.assert_allclose(
        np.linalg.norm(found[:, None] - found, axis=2),
        np.linalg.norm(vectors[:, None] - vectors, axis=2),
        atol=1e-4,
    )
    assert principal_components(np.ones((60, 90))).shape == (60, 50)
    assert principal_components(np.random.default_rng(0).normal(size=(7, 90))).shape == (7, 7)


def test_rows_beyond_the_landmarks_lie_among_their_neighbors(collection, monkeypatch):
    monkeypatch.setattr(module, "LANDMARKS", 30)
    snapshot = collection.snapshot()
    found = collection_map(snapshot)
    assert found.ids.tolist() == [item.id for item in snapshot.items()]
    drawn = np.sort(np.random.default_rng(0).permutation(60)[:30])
    alone = module.tsne(
        module.torch.from_numpy(principal_components(snapshot.vectors()[drawn])), seed=0
    ).numpy()
    np.testing.assert_array_equal(
        found.positions[drawn], alone
    )  # landmarks are where they would be alone
    apart = np.linalg.norm(found.positions[:, None] - found.positions, axis=2) + np.diag(
        np.full(60, np.inf)
    )
    assert (apart.argmin(axis=1) // 20 == np.arange(60) // 20).mean() > 0.9
