"""The journal of decisions: kept through crashes, undone line by line, never written through a
link."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from vicinal.errors import DataError
from vicinal.retrieval.annotations import NAME, Annotation, Annotations


@pytest.fixture
def annotations(tmp_path):
    return Annotations(tmp_path)


def test_tags_labels_and_drops_are_read_by_another_reader(annotations, tmp_path):
    annotations.change([1, 2], add=["blurred", "Ünïcode 🐦"])
    annotations.change([2], label="wren", remove=["blurred"])
    annotations.change(
        ["a/b \n,\udce9.png"], drop=True
    )  # a path that is in no collection, and no text
    known = {
        1: Annotation(tags=("blurred", "Ünïcode 🐦")),
        2: Annotation("wren", tags=("Ünïcode 🐦",)),
        "a/b \n,\udce9.png": Annotation(dropped=True),
    }
    assert annotations.read() == known == Annotations(tmp_path).read()
    annotations.change([1], remove=["blurred", "Ünïcode 🐦"])
    assert 1 not in annotations.read()  # nothing is decided about it any more


def test_a_label_takes_a_drop_back_and_a_drop_a_label(annotations):
    annotations.change([1], drop=True)
    annotations.change([1], label="wren")
    assert annotations.read()[1] == Annotation("wren")
    annotations.change([1], drop=True)
    assert annotations.read()[1] == Annotation(dropped=True)


def test_undo_takes_back_one_change_at_a_time_as_a_whole(annotations, tmp_path):
    annotations.change([1, 2], label="a")
    annotations.change([2, 3], label="b")
    assert annotations.undo() and annotations.read() == {1: Annotation("a"), 2: Annotation("a")}
    annotations.change([4], drop=True)
    assert annotations.undo() and annotations.undo()
    assert annotations.read() == {} == Annotations(tmp_path).read()
    assert not annotations.undo() and annotations.last is None
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 6  # append-only


@pytest.mark.parametrize("cut", [1, 5, 12, 40])
def test_a_line_cut_off_by_a_crash_is_left_out_and_the_next_one_is_kept(annotations, tmp_path, cut):
    annotations.change([1], label="a")
    annotations.change([2], label="b")
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(data[:-cut])
    after = Annotations(tmp_path)
    assert after.read() == {1: Annotation("a")}
    after.change([3], label="c")
    again = Annotations(tmp_path)
    assert again.read() == {1: Annotation("a"), 3: Annotation("c")} and again.damaged == 1
    assert again.undo() and again.read() == {1: Annotation("a")}  # the undo names the right line


def test_killed_in_the_middle_of_a_write(tmp_path):
    """A process is killed after each number of written bytes; what it had finished stays."""
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom vicinal.retrieval import annotations as "
        "module\n"
        "a = module.Annotations(Path(sys.argv[1]))\na.change([1], label='a')\n"
        "whole = os.write\n"
        "def torn(handle, data):\n    whole(handle, data[: int(sys.argv[2])])\n    "
        "os.kill(os.getpid(), 9)\n"
        "os.write = torn\na.change([2], label='b')\n"
    )
    for count in (0, 20):
        folder = tmp_path / str(count)
        folder.mkdir()
        done = subprocess.run([sys.executable, "-c", script, str(folder), str(count)], check=False)
        assert done.returncode == -9
        left = Annotations(folder)
        assert left.read() == {1: Annotation("a")}
        left.change([3], drop=True)
        assert Annotations(folder).read() == {1: Annotation("a"), 3: Annotation(dropped=True)}


@pytest.mark.parametrize(
    "damage",
    [
        b"garbage\n",
        b"\xff\xfe\n",
        b"\n",
        b'00000000 {"targets":[1],"label":"x"}\n',
        b"d202ef8d {}\n",
    ],
)
def test_damaged_lines_are_counted_and_left_out(annotations, tmp_path, damage):
    annotations.change([1], label="a")
    with (tmp_path / NAME).open("ab") as file:
        file.write(damage)
    assert annotations.read() == {1: Annotation("a")} and annotations.damaged == 1
    annotations.change([1], label="b")
    assert annotations.read() == {1: Annotation("b")}


def test_a_flipped_bit_is_noticed(annotations, tmp_path):
    annotations.change([1], label="wren")
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes().replace(b"wren", b"wrfn"))
    fresh = Annotations(tmp_path)
    assert fresh.read() == {} and fresh.damaged == 1


def test_no_link_and_no_pipe_is_followed(annotations, tmp_path):
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("mine\n")
    for make in (lambda path: path.symlink_to(foreign), os.mkfifo, lambda path: path.mkdir()):
        make(tmp_path / NAME)
        for act in (annotations.read, lambda: annotations.change([1], drop=True)):
            with pytest.raises(DataError, match="link or no regular file"):
                act()
        (tmp_path / NAME).rmdir() if (tmp_path / NAME).is_dir() else (tmp_path / NAME).unlink()
    assert foreign.read_text() == "mine\n"


def test_many_writers_lose_nothing(tmp_path):
    def write(place):
        mine = Annotations(tmp_path)  # as another process would open it
        for number in range(5):
            mine.change([5 * place + number], label="a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = Annotations(tmp_path)
    assert set(found.read()) == set(range(20)) and found.damaged == 0


@pytest.mark.parametrize(
    "change",
    [
        {"targets": [], "drop": True},
        {"targets": [1]},
        {"targets": [1], "label": "a", "drop": True},
        {"targets": [1], "label": " a"},
        {"targets": [1], "label": "a\nb"},
        {"targets": [1], "label": ""},
        {"targets": [1], "add": ["a;b"]},
        {"targets": [1], "add": ["a;b"], "label": "a;b"},
        {"targets": [1], "add": ["x" * 201]},
    ],
)
def test_what_cannot_be_kept_is_rejected_and_writes_nothing(annotations, tmp_path, change):
    with pytest.raises(DataError):
        annotations.change(**change)
    assert not (tmp_path / NAME).exists()
