"""Files are there whole or not there."""

import errno
import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vicinal import files
from vicinal.errors import DataError
from vicinal.files import (
    check_links,
    followed,
    read_array,
    read_arrays,
    read_json,
    read_lines,
    read_tensors,
    remove_parts,
    write_arrays,
    write_atomically,
    write_json,
    write_text,
)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_written_to(code, tmp_path, monkeypatch):
    def no_lock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.fcntl, "flock", no_lock)
    left = tmp_path / ".value.json.x.part"
    left.write_bytes(b"{")
    write_json(tmp_path / "value.json", {"a": 1})
    assert read_json(tmp_path / "value.json") == {"a": 1}
    assert left.exists(), "whether a writer lives cannot be known"


def test_parts_that_a_living_writer_has_locked_stay(tmp_path):
    dead = tmp_path / ".dead.x.part"
    dead.write_bytes(b"{")

    def write(file):
        remove_parts(tmp_path)
        file.write(b"{}")

    write_atomically(tmp_path / "value.json", write)
    assert list(tmp_path.iterdir()) == [tmp_path / "value.json"]


def test_a_writer_that_fails_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})

    def half(file):
        file.write(b"{")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, half)
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_pickled_arrays_are_rejected_not_executed(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(DataError, match=r"plain arrays.*`numpy\.asarray\(labels, dtype=str\)`"):
        read_arrays(path)


def test_damaged_archives_are_named(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(path, {"a": np.random.default_rng(0).normal(size=1000)})
    whole = path.read_bytes()
    with path.with_suffix(".npy").open("wb") as file:
        np.save(file, np.arange(3))
    for content in (whole[:100], whole[:-50], b"", b"PK", path.with_suffix(".npy").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.npz"):
            read_arrays(path)
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "missing.npz")


READERS = {
    "x.json": read_json,
    "x.jsonl": lambda path: list(read_lines(path)),
    "x.npy": read_array,
    "x.npz": read_arrays,
    "x.safetensors": read_tensors,
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in READERS for content in (b"{\n", b"\xff\xfe\n")),
        *((name, b"[" * 10**5 + b"\n") for name in ("x.json", "x.jsonl")),
        ("x.jsonl", b"[1]\n"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=name):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name} is not a regular file"):
        READERS[name](tmp_path / name)


def test_a_cut_array_is_named(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000))
    path.write_bytes(path.read_bytes()[:-8])
    for mapped in (False, True):
        with pytest.raises(DataError, match=r"x\.npy"):
            read_array(path, mapped=mapped)


def test_a_full_disk_names_the_file(tmp_path):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*x\.json'"):
        write_atomically(tmp_path / "x.json", full)


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_of_a_living_one(tmp_path):
    (tmp_path / ".x.json.abc.part").write_bytes(b"left")
    (tmp_path / ".y.json.abc.part").write_bytes(b"of another file")

    def beside(file):
        file.write(b"slow")
        write_text(tmp_path / "x.json", "fast")
        assert len(list(tmp_path.glob(".x.json.*.part"))) == 1  # that of the slow one

    write_atomically(tmp_path / "x.json", beside)
    assert (tmp_path / "x.json").read_bytes() == b"slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".y.json.abc.part", "x.json"]


def test_threads_read_arrays_side_by_side(tmp_path):
    """Python 3.11 mixes up parsers of several threads where a garbage collection runs Python code
    between."""
    np.save(tmp_path / "a.npy", np.arange(6.0))
    write_arrays(tmp_path / "a.npz", {"a": np.arange(6.0)})

    def read(_):
        for _ in range(100):
            found = read_array(tmp_path / "a.npy"), read_array(tmp_path / "a.npy", mapped=True)
            assert all(
                array.sum() == read_arrays(tmp_path / "a.npz")["a"].sum() == 15 for array in found
            )

    def let_others_run(*_):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_others_run)


def test_files_are_written_where_the_system_has_no_flock(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    (tmp_path / ".a.json.x.part").write_bytes(b"{")  # of a writer that was killed
    write_json(tmp_path / "a.json", {"b": 1})
    assert read_json(tmp_path / "a.json") == {"b": 1} and len(list(tmp_path.iterdir())) == 1


def test_links_that_lead_back_to_themselves_lead_nowhere_else(tmp_path):
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "up").symlink_to(tmp_path)
    check_links(tmp_path)
    assert followed(tmp_path / "up") == tmp_path.resolve()


def test_content_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done, sync, rename = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("name"), rename(*names)))
    write_json(tmp_path / "a.json", {})
    assert done == ["sync", "name", "sync"]  # the file, its name, the folder
