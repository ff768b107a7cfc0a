"""Writing: whole or not at all, one writer at a time."""

import shutil
from hashlib import sha256

import numpy as np
import pytest

from vicinal.errors import DataError, RunError
from vicinal.retrieval.collection import CollectionDirectory, publish, writing
from vicinal.retrieval.indexing import VectorCache
from vicinal.retrieval.items import Item


def publish_rows(path, count):
    return publish(
        path, [Item(row, str(row), None) for row in range(count)], np.zeros((count, 2)), dim=2
    )


def test_the_newest_two_generations_stay(tmp_path):
    assert [publish_rows(tmp_path, 3) for _ in range(4)] == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.glob("generation-*")) == [
        "generation-00000003",
        "generation-00000004",
    ]


def test_what_a_dead_writer_left_is_written_over(tmp_path):
    publish_rows(tmp_path, 3)
    for name in ("generation-00000002", "generation-00000002.part"):  # killed at either rename
        (tmp_path / name).mkdir()
        (tmp_path / name / "vectors.npy").write_bytes(b"half")
    assert CollectionDirectory.open(tmp_path).snapshot().generation == 1
    assert (
        publish_rows(tmp_path, 5) == 2 and len(CollectionDirectory.open(tmp_path).snapshot()) == 5
    )


@pytest.mark.parametrize(
    ("items", "vectors", "message"),
    [
        ([Item(0, "a", None)], np.full((1, 2), np.nan), "finite"),
        ([Item(0, "a", None)], np.zeros((1, 3)), "length 2"),
        ([Item(0, "a", None)], np.zeros((2, 2)), "1 items"),
    ],
)
def test_a_rejected_generation_changes_nothing(items, vectors, message, tmp_path):
    publish_rows(tmp_path, 3)
    with pytest.raises(DataError, match=message):
        publish(tmp_path, items, vectors, dim=2)
    assert CollectionDirectory.open(tmp_path).snapshot().generation == 1


def test_a_second_writer_is_rejected(tmp_path):
    with (
        writing(tmp_path),
        pytest.raises(RunError, match="by another process"),
        writing(tmp_path),
    ):
        pass


DIGESTS = [sha256(bytes([number])).hexdigest() for number in range(6)]
VECTORS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


def opened(folder, model="m"):
    return VectorCache(folder, model)


@pytest.fixture
def cache(tmp_path):
    cache = opened(tmp_path)
    cache.append(DIGESTS[:2], VECTORS[:2])
    cache.append(DIGESTS[2:5], VECTORS[2:5])
    return cache


def kept(folder, **settings):
    cache = opened(folder, **settings)
    places = [place for place, digest in enumerate(DIGESTS) if digest in cache]
    assert all(np.array_equal(cache[DIGESTS[place]], VECTORS[place]) for place in places)
    return places


def test_vectors_are_found_again_by_their_content(cache, tmp_path):
    assert kept(tmp_path) == [0, 1, 2, 3, 4]
    shutil.rmtree(cache.path)
    assert kept(tmp_path) == []


def test_another_model_begins_anew(cache, tmp_path):
    assert kept(tmp_path, model="other") == [] and not cache.path.exists()
