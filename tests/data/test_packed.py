"""What is packed comes out again, on another machine too, and is trusted only when it is whole."""

import io
import json
import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from vicinal.arguments import build, describe
from vicinal.data import DATASETS, open_path
from vicinal.data.folder import Folder
from vicinal.data.packed import MANIFEST, Packed, pack, unpack
from vicinal.data.records import FeatureArray, ImageArray, Records
from vicinal.data.table import Table
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, DataError
from vicinal.files import file_hash


@pytest.fixture
def packed(class_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("carried")
    pack(Folder(str(class_folders), test=0.5).load(), folder, part_bytes=10_240)
    return folder


def test_a_path_or_a_description_opens_it(packed):
    assert (
        open_path(packed)
        == Packed(str(packed))
        == Packed(packed)
        == build(describe(Packed(packed)), DATASETS)
    )
    records = Packed(str(packed)).load()
    assert len(records) == 12 and len(list(packed.glob("part-*.tar"))) > 1


def test_the_source_may_be_sent_to_other_processes(packed):
    source = Packed(str(packed)).load().source
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    np.testing.assert_array_equal(np.asarray(copy.read(7)), np.asarray(source.read(7)))
    assert copy.name(7) == source.name(7) == "c/1.jpg"


def test_missing_parts_are_rejected_by_number(packed):
    (packed / "part-001.tar").unlink()
    (packed / "rows.npz").unlink()
    with pytest.raises(DataError, match=r"are missing: part-001\.tar, rows\.npz\."):
        Packed(str(packed)).load(strict=False)


def test_a_changed_byte_is_noticed_by_its_hash_and_a_cut_by_its_size(packed):
    part = packed / "part-000.tar"
    content = bytearray(part.read_bytes())
    content[700] ^= 1
    part.write_bytes(content)
    with pytest.raises(DataError, match=r"differ in size or hash .*: part-000\.tar"):
        Packed(str(packed)).load()
    assert (
        len(Packed(str(packed)).load(strict=False)) == 12
    )  # a check then reads and names each image
    part.write_bytes(content[:-512])
    with pytest.raises(DataError, match=r"differ in size or hash .*: part-000\.tar"):
        Packed(str(packed)).load(strict=False)


def test_a_pipe_is_not_hashed(tmp_path):
    """``vicinal search`` waited without end where a run's ``model.json`` was one."""
    os.mkfifo(tmp_path / "model.json")
    with pytest.raises(DataError, match="not a regular file"):
        file_hash(tmp_path / "model.json")


def test_an_unreadable_image_is_rejected_by_name(packed):
    records = Packed(str(packed)).load()
    part = packed / "part-000.tar"
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(DataError, match=r"image a/0\.jpg in .*part-000\.tar cannot be read"):
        records.source.read(0)
    part.unlink()
    with pytest.raises(DataError, match=r"image a/0\.jpg in .*part-000\.tar cannot be read"):
        records.source.read(0)


def test_a_set_without_its_list_or_of_another_format_is_rejected(packed):
    manifest = json.loads((packed / MANIFEST).read_text())
    for changed in (manifest | {"format": 2}, {"format": 1}, []):
        (packed / MANIFEST).write_text(json.dumps(changed))
        with pytest.raises(DataError, match=r"no packed set of format 1"):
            Packed(str(packed)).load()
    (packed / MANIFEST).unlink()
    with pytest.raises(DataError, match=r"it has no packed\.json"):
        Packed(str(packed)).load()


CANVAS = ImageTransform(size=8, resize=10, canvas=10)


@pytest.fixture
def images(write_pictures):
    root = write_pictures(
        *(f"set/{name}/{number}.jpg" for name in "abcd" for number in range(3)), size=(29, 17)
    )
    records = Folder(str(root / "set"), test=0.5).load()
    return Records(
        records.name,
        records.source,
        records.labels,
        records.classes,
        records.splits,
        {"labels": np.linspace(0, 1, 12)},
    )


def pixels(records):
    return [np.asarray(records.source.read(row)) for row in range(len(records))]


def test_files_are_packed_byte_for_byte_with_all_that_is_known_of_them(images, tmp_path):
    told = []
    files = pack(images, tmp_path / "packed", progress=told.append)
    assert [file.name for file in files] == ["part-000.tar", "rows.npz", "packed.json"] and told[
        -1
    ] == 12
    records = Packed(str(tmp_path / "packed")).load()
    assert records.fingerprint() == images.fingerprint() and records.name == images.name
    assert records.classes == images.classes and records.splits.tolist() == images.splits.tolist()
    np.testing.assert_array_equal(records.labels, images.labels)
    np.testing.assert_array_equal(
        records.columns["labels"], images.columns["labels"]
    )  # a column named as one of ours
    with tarfile.open(files[0]) as archive:
        encoded = [archive.extractfile(member).read() for member in archive]
    assert encoded == [(images.source.root / path).read_bytes() for path in images.source.paths]
    for ours, theirs in zip(pixels(records), pixels(images), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_no_part_is_larger_than_asked_for_and_none_is_wasted(images, tmp_path):
    whole = sum((images.source.root / path).stat().st_size for path in images.source.paths)
    limit = 20_480  # tar pads to 10,240
    *parts, _, _ = pack(images, tmp_path / "packed", part_bytes=limit)
    assert len(parts) > 1 and all(part.stat().st_size <= limit for part in parts)
    assert len(parts) <= -(-whole // (limit // 2))
    for ours, theirs in zip(
        pixels(Packed(str(tmp_path / "packed")).load()), pixels(images), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_packing_twice_gives_the_same_bytes(images, tmp_path):
    one, other = (pack(images, tmp_path / name, transform=CANVAS) for name in ("one", "other"))
    assert [file.read_bytes() for file in one[:-2]] == [file.read_bytes() for file in other[:-2]]


def test_prepared_images_stay_as_they_are_under_the_same_transform(write_pictures, tmp_path):
    slope = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)  # smooth: JPEG loses little
    records = Records(
        "slopes",
        ImageArray(np.stack([slope, 255 - slope]), ["x", "y"]),
        np.arange(2),
        ("x", "y"),
        np.array(["train"] * 2),
    )
    for channels in (1, 3):
        transform = ImageTransform(size=24, resize=32, canvas=30, channels=channels)
        pack(records, tmp_path / f"{channels}", transform=transform)
        packed = Packed(str(tmp_path / f"{channels}")).load()
        for row in range(2):
            image = packed.source.read(row)
            assert image.size == (30, 30) and image.mode == ("L" if channels == 1 else "RGB")
            before = transform.prepare(records.source.read(row)).int()
            after = ImageTransform(size=24, canvas=30, channels=channels).prepare(image).int()
            assert (before - after).abs().float().mean() < 2


def test_images_that_are_not_plain_rgb_or_grey_are_packed_as_they_are_read(tmp_path):
    folder = tmp_path / "set" / "a"
    folder.mkdir(parents=True)
    deep = np.linspace(0, 65535, 80).reshape(8, 10).astype(np.uint16)
    Image.fromarray(deep).save(folder / "deep.png")
    Image.fromarray(np.full((8, 10, 4), 90, np.uint8), "RGBA").save(folder / "clear.png")
    records = Folder(str(tmp_path / "set"), test=0.0).load()
    pack(records, tmp_path / "packed")
    for ours, theirs in zip(
        pixels(Packed(str(tmp_path / "packed")).load()), pixels(records), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_images_in_memory_lose_nothing(tmp_path, rng):
    grey = np.random.default_rng(0).integers(0, 256, (3, 9, 7), dtype=np.uint8)
    records = Records(
        "m", ImageArray(grey, list("abc")), np.arange(3), ("x", "y", "z"), np.array(["test"] * 3)
    )
    pack(records.take(np.array([2, 0])), tmp_path / "packed")
    packed = Packed(str(tmp_path / "packed")).load()
    np.testing.assert_array_equal(np.stack(pixels(packed)), grey[[2, 0]])
    assert [packed.source.name(row) for row in range(2)] == ["c", "a"]


def test_what_cannot_be_packed_is_rejected(images, tmp_path):
    features = FeatureArray(np.zeros((1, 2), np.float32), ["a"])
    with pytest.raises(ConfigError, match="f holds 1 features"):
        pack(
            Records("f", features, np.zeros(1, int), ("x",), np.array(["train"])),
            tmp_path / "packed",
        )
    with pytest.raises(ConfigError, match="quality of a JPEG is 1 to 100, got 0"):
        pack(images, tmp_path / "packed", quality=0)
    with pytest.raises(ConfigError, match=r"a/0\.jpg takes \d+ bytes, more than a part of 1000"):
        pack(images, tmp_path / "packed", part_bytes=1000)
    with pytest.raises(DataError, match=r"a/0\.jpg: a square of 99 pixels"):
        pack(images, tmp_path / "packed", transform=ImageTransform(size=9, canvas=99))
    (images.source.root / images.source.paths[4]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"b/1\.jpg cannot be read"):
        pack(images, tmp_path / "packed")
    assert not Packed.lies_in(tmp_path / "packed")


def test_a_packed_set_is_not_overwritten(images, tmp_path):
    pack(images, tmp_path / "packed")
    with pytest.raises(ConfigError, match="holds a packed set already"):
        pack(images, tmp_path / "packed")


def test_an_encoded_canvas_is_a_jpeg_with_full_colours(images, tmp_path):
    part, *_ = pack(images, tmp_path / "packed", transform=CANVAS)
    with tarfile.open(part) as archive:
        image = Image.open(io.BytesIO(archive.extractfile("00000000.jpg").read()))
    assert image.format == "JPEG" and {layer[1:3] for layer in image.layer} == {(1, 1)}


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
    records = Records(
        "memory", ImageArray(pixels, names), np.arange(2), classes, np.array(["train", "test"])
    )
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
    assert (folder / "c" / "00000007.jpg").read_bytes() == (
        original.source.root / "c" / "1.jpg"
    ).read_bytes()
    assert Table(str(table)).load().splits.tolist() == original.splits.tolist()


def test_the_ending_says_what_a_file_now_is(tmp_path):
    unpack(in_memory(["a/one.bmp", "U+0041 Sans 00"], tmp_path), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").rglob("*.png")} == {
        "one.png",
        "U+0041 Sans 00.png",
    }


def test_prepared_images_come_out_as_the_jpegs_they_are(write_pictures, tmp_path):
    root = write_pictures("set/a/1.png", "set/b/2.png")
    pack(
        Folder(str(root / "set")).load(),
        tmp_path / "packed",
        transform=ImageTransform(size=4, resize=4),
    )
    unpack(Packed(str(tmp_path / "packed")).load(), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").rglob("*.*")} == {
        "1.jpg",
        "2.jpg",
        "records.csv",
    }


def test_columns_of_the_records_are_in_the_table(tmp_path):
    pixels = np.zeros((2, 4, 4), dtype=np.uint8)
    columns = {"role": np.array([1, 2]), "angle": np.array([0.5, -1.0])}
    splits = np.array(["train", "test"])
    pack(
        Records("m", ImageArray(pixels, ["a", "b"]), np.arange(2), ("x", "y"), splits, columns),
        tmp_path / "packed",
    )
    table = unpack(Packed(str(tmp_path / "packed")).load(), tmp_path / "out")
    found = Table(str(table)).load().columns
    assert found["role"].tolist() == [1, 2] and found["angle"].tolist() == [0.5, -1.0]


@pytest.mark.parametrize("name", ["/tmp/owned.png", "../owned.png", "a/../../owned.png", "..", ""])
def test_a_name_that_leads_out_of_the_folder_is_rejected(name, tmp_path):
    packed = in_memory(["fine.png", name], tmp_path)
    with pytest.raises(DataError, match="leads out of the folder"):
        unpack(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    unpack(packed, tmp_path / "out", by="class")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["records.csv", "x", "y"]


@pytest.mark.parametrize("classes", [("..", "y"), ("", "y"), (".hidden", "y"), ("a/b", "a-b")])
def test_a_class_that_cannot_name_a_folder_of_its_own_is_rejected(classes, tmp_path):
    with pytest.raises(DataError, match="Unpack by name"):
        unpack(in_memory(["a.png", "b.png"], tmp_path, classes), tmp_path / "out", by="class")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "names", [("a.png", "./a.png"), ("a.png", "a.bmp"), ("a.png", "a.png/b.png")]
)
def test_files_that_would_overwrite_each_other_are_rejected(names, tmp_path):
    with pytest.raises(DataError, match="Unpack by class"):
        unpack(in_memory(list(names), tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_that_is_there_is_touched(carried, tmp_path):
    _, packed = carried
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError, match="not empty"):
            unpack(packed, place)


def test_what_was_not_packed_cannot_be_unpacked(carried, tmp_path):
    original, packed = carried
    for records in (original, packed.part("train")):
        with pytest.raises(ConfigError, match="only a whole packed set can be unpacked"):
            unpack(records, tmp_path / "out")
