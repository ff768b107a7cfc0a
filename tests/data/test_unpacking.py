"""Files come out of a packed set as they went in, and only below the folder that was named."""

import tarfile

import numpy as np
import pytest

from vicinal.data.folder import Folder
from vicinal.data.packed import Packed
from vicinal.data.packing import pack
from vicinal.data.records import ImageArray, Records
from vicinal.data.table import Table
from vicinal.data.transforms import ImageTransform
from vicinal.data.unpacking import unpack
from vicinal.errors import ConfigError, DataError


@pytest.fixture
def carried(class_folders, tmp_path_factory):
    """A folder of pictures and the same, packed in several parts and loaded again."""
    folder = tmp_path_factory.mktemp("carried")
    records = Folder(str(class_folders), test=0.5).load()
    pack(records, folder, part_bytes=10_240)
    return records, Packed(str(folder)).load()


def in_memory(names, tmp_path, classes=("x", "y")):
    """Two tiny pictures, packed under the given names."""
    pixels = np.arange(32, dtype=np.uint8).reshape(2, 4, 4)
    records = Records("memory", ImageArray(pixels, names), np.arange(2), classes, np.array(["train", "test"]))
    pack(records, tmp_path / "packed")
    return Packed(str(tmp_path / "packed")).load()


def test_files_come_back_byte_for_byte_with_labels_and_splits(carried, tmp_path_factory):
    original, packed = carried
    folder, told = tmp_path_factory.mktemp("out") / "new", []
    table = unpack(packed, folder, progress=told.append)
    for path in original.source.paths:
        assert (folder / path).read_bytes() == (original.source.root / path).read_bytes()
    assert told[-1] == 12 and Table(str(table)).load().fingerprint() == original.fingerprint()
    assert Folder(str(folder)).load().classes == original.classes


def test_images_can_be_put_into_one_folder_per_class(carried, tmp_path_factory):
    original, packed = carried
    folder = tmp_path_factory.mktemp("out")
    table = unpack(packed, folder, by="class")
    assert (folder / "c" / "00000007.jpg").read_bytes() == (original.source.root / "c" / "1.jpg").read_bytes()
    assert Table(str(table)).load().splits.tolist() == original.splits.tolist()


def test_the_ending_says_what_a_file_now_is(tmp_path):
    unpack(in_memory(["a/one.bmp", "U+0041 Sans 00"], tmp_path), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").rglob("*.png")} == {"one.png", "U+0041 Sans 00.png"}


def test_prepared_images_come_out_as_the_jpegs_they_are(write_pictures, tmp_path):
    root = write_pictures("set/a/1.png", "set/b/2.png")
    pack(Folder(str(root / "set")).load(), tmp_path / "packed", transform=ImageTransform(size=4, resize=4))
    unpack(Packed(str(tmp_path / "packed")).load(), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").rglob("*.*")} == {"1.jpg", "2.jpg", "records.csv"}


def test_columns_of_the_records_are_in_the_table(tmp_path):
    pixels = np.zeros((2, 4, 4), dtype=np.uint8)
    columns = {"role": np.array([1, 2]), "angle": np.array([0.5, -1.0])}
    splits = np.array(["train", "test"])
    pack(Records("m", ImageArray(pixels, ["a", "b"]), np.arange(2), ("x", "y"), splits, columns), tmp_path / "packed")
    table = unpack(Packed(str(tmp_path / "packed")).load(), tmp_path / "out")
    found = Table(str(table)).load().columns
    assert found["role"].tolist() == [1, 2] and found["angle"].tolist() == [0.5, -1.0]


@pytest.mark.parametrize("name", ["/tmp/owned.png", "../owned.png", "a/../../owned.png", "..", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(name, tmp_path):
    packed = in_memory(["fine.png", name], tmp_path)
    with pytest.raises(DataError, match="leads out of it"):
        unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unpack(packed, tmp_path / "out", by="class")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["records.csv", "x", "y"]


@pytest.mark.parametrize("classes", [("..", "y"), ("", "y"), (".hidden", "y"), ("a/b", "a-b")])
def test_a_class_that_cannot_name_a_folder_of_its_own_is_refused(classes, tmp_path):
    with pytest.raises(DataError, match="Unpack by name"):
        unpack(in_memory(["a.png", "b.png"], tmp_path, classes), tmp_path / "out", by="class")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("names", [("a.png", "./a.png"), ("a.png", "a.bmp"), ("a.png", "a.png/b.png")])
def test_files_that_would_overwrite_each_other_are_refused(names, tmp_path):
    with pytest.raises(DataError, match="Unpack by class"):
        unpack(in_memory(list(names), tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_that_is_there_is_touched(carried, tmp_path):
    _, packed = carried
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError, match="not empty"):
            unpack(packed, place)


def test_a_part_that_holds_something_else_is_refused(carried, tmp_path_factory):
    _, packed = carried
    with tarfile.open(packed.source.folder / packed.source.files[0], "w") as archive:
        link = tarfile.TarInfo("00000000.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match="no image that `pack` wrote"):
        unpack(packed, tmp_path_factory.mktemp("out"))


def test_what_was_not_packed_cannot_be_unpacked(carried, tmp_path):
    original, packed = carried
    for records in (original, packed.part("train")):
        with pytest.raises(ConfigError, match="a whole packed set is unpacked"):
            unpack(records, tmp_path / "out")
    with pytest.raises(ConfigError, match="did you mean 'name'"):
        unpack(packed, tmp_path / "out", by="names")
