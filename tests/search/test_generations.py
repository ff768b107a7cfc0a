"""Writing: whole or not at all, one writer at a time."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from vicinal.errors import DataError, RunError
from vicinal.search.collection import CollectionDirectory, Item
from vicinal.search.generations import publish, writing


def publish_rows(path, count):
    return publish(path, [Item(row, str(row), None) for row in range(count)], np.zeros((count, 2)), dim=2)


def test_the_newest_two_generations_stay(tmp_path):
    assert [publish_rows(tmp_path, 3) for _ in range(4)] == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.glob("generation-*")) == ["generation-00000003", "generation-00000004"]


def test_what_a_dead_writer_left_is_written_over(tmp_path):
    publish_rows(tmp_path, 3)
    for name in ("generation-00000002", "generation-00000002.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vectors.npy").write_bytes(b"half")
    assert CollectionDirectory.open(tmp_path).snapshot().generation == 1
    assert publish_rows(tmp_path, 5) == 2 and len(CollectionDirectory.open(tmp_path).snapshot()) == 5


@pytest.mark.parametrize(
    ("items", "vectors", "message"),
    [
        ([Item(0, "a", None)], np.full((1, 2), np.nan), "finite"),
        ([Item(0, "a", None)], np.zeros((1, 3)), "length 2"),
        ([Item(0, "a", None)], np.zeros((2, 2)), "1 items"),
        ([Item(1, "a", None), Item(0, "b", None)], np.zeros((2, 2)), "ascending"),
    ],
)
def test_a_refused_generation_changes_nothing(items, vectors, message, tmp_path):
    publish_rows(tmp_path, 3)
    with pytest.raises(DataError, match=message):
        publish(tmp_path, items, vectors, dim=2)
    assert CollectionDirectory.open(tmp_path).snapshot().generation == 1


def test_a_second_writer_is_told_who_the_first_is(tmp_path):
    with writing(tmp_path), pytest.raises(RunError, match=f"process {os.getpid()} on"), writing(tmp_path):
        pass
    with writing(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom vicinal.search.generations import writing\n"
        "with writing(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
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
