"""Writing: whole or not at all, one writer at a time."""

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


def test_vectors_are_found_again_by_their_content_and_model(tmp_path):
    cache = VectorCache(tmp_path, "m")
    for rows in (slice(0, 2), slice(2, 5)):
        cache.append(DIGESTS[rows], VECTORS[rows])
    again = VectorCache(tmp_path, "m")
    assert [digest in again for digest in DIGESTS] == [True] * 5 + [False]
    assert all(np.array_equal(again[DIGESTS[row]], VECTORS[row]) for row in range(5))
    assert DIGESTS[0] not in VectorCache(tmp_path, "other") and not cache.path.exists()
