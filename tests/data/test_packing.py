"""What is packed comes out again, on another machine too."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from vicinal.data.folder import Folder
from vicinal.data.packed import Packed
from vicinal.data.packing import pack
from vicinal.data.records import FeatureArray, ImageArray, Records
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, DataError

CANVAS = ImageTransform(size=8, resize=10, canvas=10)


@pytest.fixture
def images(write_pictures):
    root = write_pictures(*(f"set/{name}/{number}.jpg" for name in "abcd" for number in range(3)), size=(29, 17))
    records = Folder(str(root / "set"), test=0.5).load()
    return Records(
        records.name, records.source, records.labels, records.classes, records.splits, {"labels": np.linspace(0, 1, 12)}
    )


def pixels(records):
    return [np.asarray(records.source.read(row)) for row in range(len(records))]


def test_files_are_packed_byte_for_byte_with_all_that_is_known_of_them(images, tmp_path):
    told = []
    files = pack(images, tmp_path / "packed", progress=told.append)
    assert [file.name for file in files] == ["part-000.tar", "rows.npz", "packed.json"] and told[-1] == 12
    records = Packed(str(tmp_path / "packed")).load()
    assert records.fingerprint() == images.fingerprint() and records.name == images.name
    assert records.classes == images.classes and records.splits.tolist() == images.splits.tolist()
    np.testing.assert_array_equal(records.labels, images.labels)
    np.testing.assert_array_equal(records.columns["labels"], images.columns["labels"])  # a column named as one of ours
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
    for ours, theirs in zip(pixels(Packed(str(tmp_path / "packed")).load()), pixels(images), strict=True):
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
    for ours, theirs in zip(pixels(Packed(str(tmp_path / "packed")).load()), pixels(records), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_images_in_memory_lose_nothing(tmp_path, rng):
    grey = np.random.default_rng(0).integers(0, 256, (3, 9, 7), dtype=np.uint8)
    records = Records("m", ImageArray(grey, list("abc")), np.arange(3), ("x", "y", "z"), np.array(["test"] * 3))
    pack(records.take(np.array([2, 0])), tmp_path / "packed")
    packed = Packed(str(tmp_path / "packed")).load()
    np.testing.assert_array_equal(np.stack(pixels(packed)), grey[[2, 0]])
    assert [packed.source.name(row) for row in range(2)] == ["c", "a"]


def test_what_cannot_be_packed_is_refused(images, tmp_path):
    features = FeatureArray(np.zeros((1, 2), np.float32), ["a"])
    with pytest.raises(ConfigError, match="f holds 1 features"):
        pack(Records("f", features, np.zeros(1, int), ("x",), np.array(["train"])), tmp_path / "packed")
    with pytest.raises(ConfigError, match="quality of a JPEG is 1 to 100, but 0"):
        pack(images, tmp_path / "packed", quality=0)
    with pytest.raises(ConfigError, match=r"a/0\.jpg takes \d+ bytes, which no part of 1000"):
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
