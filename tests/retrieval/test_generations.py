"""Writing: whole or not at all, one writer at a time."""

import os
import signal
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from vicinal.errors import DataError, RunError
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.generations import VectorJournal, publish, writing
from vicinal.retrieval.store import Item


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
        ([Item(1, "a", None), Item(0, "b", None)], np.zeros((2, 2)), "ascending"),
    ],
)
def test_a_rejected_generation_changes_nothing(items, vectors, message, tmp_path):
    publish_rows(tmp_path, 3)
    with pytest.raises(DataError, match=message):
        publish(tmp_path, items, vectors, dim=2)
    assert CollectionDirectory.open(tmp_path).snapshot().generation == 1


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    with (
        writing(tmp_path),
        pytest.raises(RunError, match=f"process {os.getpid()} on"),
        writing(tmp_path),
    ):
        pass
    with writing(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom vicinal.retrieval.generations import "
        "writing\n"
        "with writing(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"process {holder.pid}"), writing(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with writing(tmp_path):
        pass


DIGESTS = [sha256(bytes([number])).hexdigest() for number in range(6)]
VECTORS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


def opened(path, model="m", dim=3):
    return VectorJournal(path, dim=dim, model=model)


@pytest.fixture
def path(tmp_path):
    journal = opened(tmp_path / "journal.bin")
    journal.append(DIGESTS[:2], VECTORS[:2])
    journal.append(DIGESTS[2:5], VECTORS[2:5])
    journal.close()
    return tmp_path / "journal.bin"


def test_vectors_are_found_again_by_their_content(path):
    journal = opened(path)
    assert len(journal) == 5 and DIGESTS[5] not in journal
    assert np.array_equal([journal.vector(digest) for digest in DIGESTS[:5]], VECTORS[:5])
    journal.close()


@pytest.mark.parametrize("lost", [1, 10, 48, 49, 100])
def test_a_cut_end_loses_only_what_was_cut(path, lost):
    path.write_bytes(path.read_bytes()[:-lost])
    journal = opened(path)
    whole = 5 - -(-lost // 48)  # an entry has 32 + 12 + 4 bytes
    assert len(journal) == whole and np.array_equal(
        journal.vector(DIGESTS[whole - 1]), VECTORS[whole - 1]
    )
    journal.append(DIGESTS[5:], VECTORS[5:])
    journal.close()
    again = opened(path)
    assert len(again) == whole + 1 and np.array_equal(again.vector(DIGESTS[5]), VECTORS[5])
    again.close()


def test_a_damaged_entry_is_not_believed(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    journal = opened(path)
    assert len(journal) == 4 and DIGESTS[4] not in journal
    journal.close()


@pytest.mark.parametrize(("model", "dim"), [("another", 3), ("m", 4)])
def test_another_model_begins_anew(path, model, dim):
    journal = opened(path, model, dim)
    assert len(journal) == 0
    journal.close()


def test_clearing_removes_the_file(path):
    opened(path).clear()
    assert not path.exists()
