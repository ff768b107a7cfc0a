"""Folders of class folders."""

import os
import shutil
import tarfile

import pytest
from PIL import Image

from vicinal.data import check, open_path
from vicinal.data.folder import Folder, without_labels
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError


def test_classes_are_folders_and_rows_are_sorted(write_pictures):
    root = write_pictures("b/2.png", "b/10.PNG".lower(), "a/deep/er/1.jpg", "a/x.jpg", "c/1.png")
    records = Folder(str(root)).load()
    assert records.classes == ("a", "b", "c")
    assert records.source.paths == ["a/deep/er/1.jpg", "a/x.jpg", "b/10.png", "b/2.png", "c/1.png"]
    assert records.labels.tolist() == [0, 0, 1, 1, 2]
    assert records.source.read(0).size == (12, 10)
    assert records.name == root.name


def test_folders_above_the_classes_are_a_hierarchy_and_their_names_several_labels(write_pictures):
    root = write_pictures("x/a+b/1.png", "x/a/1.png", "y/c/1.png", "y/c/2.png")
    records = Folder(str(root), hierarchy=("kind",)).load()
    assert records.classes == ("a", "a+b", "c") and records.levels == {"kind": ("x", "y")}
    assert records.columns["kind"].tolist() == [0, 0, 1, 1]
    records = Folder(str(root / "x"), separator="+").load()
    assert records.every.tolist() == [[True, False], [True, True]]
    with pytest.raises(DataError, match="a hierarchy groups classes"):
        Folder(str(root), hierarchy=("kind",), separator="+").load()


def test_hidden_and_other_files_are_left_out(write_pictures):
    root = write_pictures("a/1.png", "b/1.png", "a/.hidden.png", ".trash/1.png", "a/.cache/1.png")
    (root / "a" / "notes.txt").write_text("not an image")
    (root / "readme.md").write_text("beside the classes")
    (root / "a" / "upper.JPG").write_bytes((root / "a" / "1.png").read_bytes())
    assert Folder(str(root)).load().source.paths == ["a/1.png", "a/upper.JPG", "b/1.png"]


@pytest.mark.parametrize("middle", [None, "val", "validation"])
def test_split_folders_are_the_splits(middle, write_pictures):
    paths = ["train/a/1.png", "train/b/1.png", "test/c/1.png", "test/a/1.png"] + (
        [f"{middle}/d/1.png"] if middle else []
    )
    records = Folder(str(write_pictures(*paths))).load()
    found = dict(zip(records.source.paths, records.splits, strict=True))
    for path in paths:
        assert found[path].startswith(path.split("/")[0])
    assert overlapping_classes(records) == ("a",)
    assert records.classes == tuple("abcd" if middle else "abc")


@pytest.mark.parametrize("tops", [("train", "val"), ("train",)])
def test_half_a_split_layout_is_rejected(tops, write_pictures):
    with pytest.raises(DataError, match=r"holds only .*Splits are `train` and `test`"):
        Folder(str(write_pictures(*(f"{top}/a/1.png" for top in tops)))).load()


def test_empty_class_folders_are_rejected_by_name(class_folders):
    (class_folders / "e").mkdir()
    (class_folders / "f").mkdir()
    with pytest.raises(DataError, match="2 of 6 hold none: e, f"):
        Folder(str(class_folders)).load()


def test_images_that_nobody_sorted_are_rows_of_one_class(write_pictures):
    root = write_pictures("2.png", "1.png", "._1.png")
    (root / "notes.txt").write_text("not an image")
    records = without_labels(str(root))
    assert records.source.paths == ["1.png", "2.png"] and records.classes == (root.name,)
    assert records.labels.tolist() == [0, 0] and set(records.splits) == {"test"}
    assert without_labels(str(root / "2.png")).source.paths == ["2.png"]
    assert without_labels(str(root / "notes.txt")) is without_labels("glyphs") is None
    write_pictures("a/1.png")
    assert without_labels(str(root)) is None  # class folders say what is in them


def test_a_folder_without_classes_is_rejected(write_pictures, tmp_path):
    write_pictures("1.png")
    with pytest.raises(DataError, match=r"one folder of images per class, but none\. Put"):
        Folder(str(tmp_path)).load()
    with pytest.raises(DataError, match="is a file"):
        Folder(str(tmp_path / "1.png")).load()
    with pytest.raises(DataError, match="does not exist"):
        Folder(str(tmp_path / "nowhere")).load()


def test_names_that_are_not_utf8_are_shown_escaped_and_read_by_their_bytes(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "x.png")
    for path in (b"caf\xe9/a.png", b"b/caf\xe9.png"):
        file = tmp_path / "set" / os.fsdecode(path)
        file.parent.mkdir(parents=True)
        shutil.copy(tmp_path / "x.png", file)
    records = Folder(str(tmp_path / "set"), test=0.0).load()
    assert records.source.names == ["b/caf\\xe9.png", "caf\\xe9/a.png"]
    assert records.classes == ("b", "caf\\xe9") and records.fingerprint()
    assert [records.source.read(row).size for row in range(2)] == [(4, 4)] * 2
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        archive.add(tmp_path / "set")
    assert open_path(tmp_path / "set.tar").load().classes == records.classes
    assert any("caf\\xe9.png" in line for line in check(records).lines())  # of equal content
