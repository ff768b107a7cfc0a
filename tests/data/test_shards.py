"""Tar shards as WebDataset writes them, and as ``pack`` does: what is packed comes out again."""

import io
import json
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from vicinal.data import (
    FeatureArray,
    Folder,
    ImageArray,
    Records,
    Shards,
    open_path,
)
from vicinal.data import shards as shards_module
from vicinal.data.shards import pack
from vicinal.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of one's own, where indexes are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def png(shade):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(path, samples):
    with tarfile.open(path, "w") as archive:
        for name, content in samples:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(2):
        rows = range(8 * number, 8 * number + 8)
        write(
            folder / f"part-{number}.tar",
            [
                entry
                for row in rows
                for entry in (
                    (f"a/{row:03}.png", png(10 * row)),
                    (f"a/{row:03}.cls", str(row % 4).encode()),
                )
            ],
        )
    return folder


def test_a_folder_of_shards_is_read_in_place(shards):
    data = open_path(shards)
    assert isinstance(data, Shards)
    records = data.load()
    assert len(records) == 16 and records.classes == ("0", "1", "2", "3")
    assert [int(np.asarray(records.source.read(row))[0, 0, 0]) for row in (0, 9, 15)] == [
        0,
        90,
        150,
    ]
    assert records.source.name(9) == "part-1.tar/a/009.png"
    assert set(records.splits) == {"train", "test"}  # by class
    assert len(open_path(shards / "part-0.tar").load()) == 8


def test_several_labels_and_levels_come_out_again(write_pictures, tmp_path):
    root = write_pictures("x/a+b/1.png", "x/a/1.png", "y/c/1.png")
    several = Folder(str(root / "x"), separator="+").load()
    pack(several, tmp_path / "several")
    again = Shards(str(tmp_path / "several")).load()
    assert again.classes == ("a", "b") and again.every.tolist() == several.every.tolist()
    pack(Folder(str(root), hierarchy=("kind",)).load(), tmp_path / "levels")
    levels = Shards(str(tmp_path / "levels"), separator="+", hierarchy=("kind",))
    with pytest.raises(DataError, match="hierarchy groups classes"):
        levels.load()
    assert replace(levels, separator="").load().levels == {"kind": ("0", "1")}
    with pytest.raises(DataError, match="unknown column 'genus'"):
        replace(levels, hierarchy=("genus",)).load()


def test_splits_are_those_of_the_names_and_labels_may_stand_in_json(tmp_path):
    for split in ("train", "test"):
        named = json.dumps({"label": f"{split} wren", "x": 1}).encode()
        write(
            tmp_path / f"{split}-000.tar",
            [("0.seg.png", png(3)), ("0.json", named), ("1.json", named), ("1.jpg", png(4))],
        )
    records = Shards(str(tmp_path)).load()
    assert records.columns["x"].tolist() == [1] * 4
    assert records.splits.tolist() == ["test"] * 2 + ["train"] * 2
    assert [records.classes[label] for label in records.labels] == ["test wren"] * 2 + [
        "train wren"
    ] * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([("0.png", png(0))], "has no label"),
        ([("0.txt", b"words")], "no image with a label"),
        ([("0.png", png(0)), ("0.json", b"[1]")], "cannot be read as a shard"),
        ([("0.png", png(0)), ("0.json", b"[" * 10_000)], "cannot be read as a shard"),
    ],
)
def test_bad_shards_are_named(tmp_path, content, said):
    write(tmp_path / "bad.tar", content)
    with pytest.raises(DataError, match=said):
        Shards(str(tmp_path / "bad.tar")).load()


def test_damaged_images_and_archives_are_named(tmp_path):
    write(
        tmp_path / "bad.tar",
        [("0.png", b"no picture"), ("0.cls", b"1"), ("1.png", png(0)), ("1.cls", b"2")],
    )
    records = Shards(str(tmp_path / "bad.tar")).load()
    with pytest.raises(DataError, match=r"0\.png in .*bad\.tar"):
        records.source.read(0)
    (tmp_path / "worse.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(DataError, match="uncompressed"):
        Shards(str(tmp_path / "worse.tar")).load()


@pytest.fixture
def images(write_pictures):
    """Three pictures of four classes, with a column."""
    root = write_pictures(
        *(f"set/{name}/{number}.jpg" for name in "abcd" for number in range(3)), size=(29, 17)
    )
    records = Folder(str(root / "set"), test=0.5).load()
    columns = {"angle": np.linspace(0, 1, 12), "role": np.arange(12)}
    classes = (".", "a", "d e/f", "鳥")  # no names of folders
    return Records(records.name, records.source, records.labels, classes, records.splits, columns)


def pixels(records):
    return [np.asarray(records.source.read(row)) for row in range(len(records))]


def test_a_round_trip_loses_nothing(images, tmp_path):
    told = []
    files = pack(images, tmp_path / "packed", progress=told.append)
    assert [file.name for file in files] == ["part-00000-of-00001.tar"] and told[-1] == 12
    data = open_path(tmp_path / "packed")
    assert data == Shards(str(tmp_path / "packed"))
    records = data.load()
    assert records.fingerprint() == images.fingerprint() and records.classes == images.classes
    assert {name: column.tolist() for name, column in records.columns.items()} == {
        name: column.tolist() for name, column in images.columns.items()
    }
    assert_array_equal(pixels(records), pixels(images))
    encoded = [records.source.encoded(row) for row in range(12)]
    assert encoded == [(images.source.root / path).read_bytes() for path in images.source.paths]
    copy = pickle.loads(pickle.dumps(records.source))  # noqa: S301  (sent to other processes)
    assert copy.name(7) == "c/1.jpg" and copy.encoded(7) == encoded[7]
    pack(images, tmp_path / "again")
    assert (tmp_path / "again" / files[0].name).read_bytes() == files[0].read_bytes()


def test_plain_tar_gives_class_folders_back(images, tmp_path):
    (shard,) = pack(images, tmp_path / "packed")
    with tarfile.open(shard) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["-", "a", "d-e-f", "鳥"]
    assert len(Folder(str(tmp_path / "out")).load()) == 12
    assert json.loads((tmp_path / "out/a/00000003.json").read_text())["path"] == "b/0.jpg"


def test_no_shard_is_larger_than_asked_for_and_a_missing_one_is_noticed(images, tmp_path):
    shards = pack(images, tmp_path / "packed", part_bytes=40_960)
    assert 1 < len(shards) <= 4 and max(shard.stat().st_size for shard in shards) <= 40_960
    assert_array_equal(pixels(Shards(str(tmp_path / "packed")).load()), pixels(images))
    last = shards[-1].read_bytes()
    shards[-1].write_bytes(last[:-11_000])  # more than tar's padding
    with pytest.raises(DataError, match="cannot be read as a shard"):
        Shards(str(tmp_path / "packed")).load()
    shards[-1].unlink()
    with pytest.raises(DataError, match=rf"should hold {len(shards)} \.tar files, but holds"):
        Shards(str(tmp_path / "packed")).load()


def test_a_pack_that_was_killed_is_not_taken_for_whole_and_given_again_it_is(
    images, tmp_path, monkeypatch
):
    def killed(done):
        if done == 4:
            raise SystemExit

    # nothing is tidied
    monkeypatch.setattr(shards_module.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        pack(images, tmp_path / "packed", part_bytes=1, progress=killed)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob(".*")] == [".packed.part"]
    assert not (tmp_path / "packed").exists()
    assert len(pack(images, tmp_path / "packed", part_bytes=1)) == 12
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(ConfigError, match=r"packed is there and not empty\. Remove it"):
        pack(images, tmp_path / "packed")


def test_resized_images_lose_little(tmp_path):
    slope = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)  # smooth: JPEG loses little
    source = ImageArray(np.stack([slope, 255 - slope]), ["x", "y"])
    records = Records("slopes", source, np.arange(2), ("x", "y"), np.array(["train"] * 2))
    pack(records, tmp_path / "packed", resize=32)
    resized = Shards(str(tmp_path / "packed")).load()
    for row in range(2):
        before = records.source.read(row).convert("RGB").resize((48, 32), Image.Resampling.BILINEAR)
        after = np.asarray(resized.source.read(row), float)
        assert np.abs(after - np.asarray(before)).mean() < 2


def test_images_in_memory_lose_nothing(tmp_path):
    gray = np.random.default_rng(0).integers(0, 256, (3, 9, 7), dtype=np.uint8)
    source = ImageArray(gray, ["/a", "../b", "/a"])  # names that no file may have
    records = Records("m", source, np.arange(3), ("x", "y", "z"), np.array(["test"] * 3))
    pack(records.take(np.array([2, 0])), tmp_path / "packed")
    packed = Shards(str(tmp_path / "packed")).load()
    assert_array_equal(np.stack(pixels(packed)), gray[[2, 0]])
    assert [packed.source.name(row) for row in range(2)] == ["/a", "/a"]


def test_what_cannot_be_packed_is_rejected(images, tmp_path):
    features = FeatureArray(np.zeros((1, 2), np.float32), ["a"])
    with pytest.raises(ConfigError, match="f holds features"):
        pack(Records("f", features, np.zeros(1, int), ("x",), np.array(["train"])), tmp_path / "p")
    (images.source.root / images.source.paths[4]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"b/1\.jpg cannot be read"):
        pack(images, tmp_path / "p", resize=8)
    assert not list(tmp_path.glob("*p*"))
