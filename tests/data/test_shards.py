"""Shards as tar makes them of class folders, and as WebDataset writes them."""

import io
import json
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vicinal.data import Folder, Shards, open_path
from vicinal.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of one's own, where indexes are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def png(shade):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(path, **samples):
    """Write files into an archive; ``_`` is the dot of a name."""
    with tarfile.open(path, "w") as archive:
        for name, content in samples.items():
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            member = tarfile.TarInfo(name.replace("_", "."))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return Shards(str(path))


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(2):
        samples = {}
        for row in range(8 * number, 8 * number + 8):
            samples |= {f"a/{row:03}_png": png(10 * row), f"a/{row:03}_cls": row % 4}
        write(folder / f"part-0000{number}-of-00002.tar", **samples)
    return folder


def test_a_folder_of_shards_is_read_in_place(shards):
    data = open_path(shards)
    assert isinstance(data, Shards)
    records = data.load()
    assert len(records) == 16 and records.classes == ("0", "1", "2", "3")
    source = pickle.loads(pickle.dumps(records.source))  # noqa: S301  (sent to other processes)
    shades = [int(np.asarray(source.read(row))[0, 0, 0]) for row in (0, 9, 15)]
    assert shades == [0, 90, 150]
    assert source.name(9) == "part-00001-of-00002.tar/a/009.png"
    assert set(records.splits) == {"train", "test"}  # by class
    first, last = sorted(shards.iterdir())
    assert len(open_path(first).load()) == 8
    whole = last.read_bytes()
    last.write_bytes(whole[:9_980])  # in the middle of an image
    with pytest.raises(DataError, match="cannot be read as a shard"):
        data.load()
    last.unlink()
    with pytest.raises(DataError, match="should hold 2 shards, but holds 1"):
        data.load()


def test_what_tar_makes_of_class_folders_are_the_same_classes_and_splits(write_pictures):
    root = write_pictures("set/a/1.png", "set/a/1.v2.png", "set/b/1.jpg", "set/c/d/1.png")
    (root / "set/a/notes.txt").touch()
    with tarfile.open(root / "set.tar", "w") as archive:
        archive.add(root / "set", "set")
    packed = open_path(root / "set.tar").load()
    assert packed.classes == ("a", "b", "d") and packed.labels.tolist().count(0) == 2
    alike = Folder(str(root / "set")).load()
    parts = [dict(zip(each.labels, each.splits, strict=True)) for each in (packed, alike)]
    assert parts[0] == parts[1]
    place = packed.names().index("set.tar/set/b/1.jpg")
    assert packed.source.encoded(place) == (root / "set/b/1.jpg").read_bytes()


def test_several_labels_and_levels_stand_in_json(tmp_path):
    first = {"label": ["a", "b"], "kind": 0, "path": "first"}
    other = {"label": "a", "kind": 1}
    several = write(tmp_path / "x.tar", a_png=png(0), a_json=first, b_png=png(1), b_json=other)
    records = several.load()
    assert records.classes == ("a", "b") and records.every.tolist() == [[1, 1], [1, 0]]
    assert records.names() == ["first", "x.tar/b.png"]
    levels = replace(several, hierarchy=("kind",))
    with pytest.raises(DataError, match="hierarchy groups classes"):
        levels.load()
    first["label"] = "b"
    write(tmp_path / "x.tar", a_png=png(0), a_json=first, b_png=png(1), b_json=other)
    assert levels.load().levels == {"kind": ("0", "1")}
    with pytest.raises(DataError, match="unknown column 'genus'"):
        replace(levels, hierarchy=("genus",)).load()


def test_splits_are_those_of_the_names_or_stand_in_json(tmp_path):
    for split in ("train", "test"):
        named = {"label": f"{split} wren", "x": 1, "split": "val"}
        samples = {"0_seg_png": png(3), "0_json": named, "1_json": named, "1_jpg": png(4)}
        write(tmp_path / f"{split}-000.tar", **samples)
    records = Shards(str(tmp_path)).load()
    assert records.columns["x"].tolist() == [1] * 4
    assert records.splits.tolist() == ["test"] * 2 + ["train"] * 2
    assert [records.classes[label] for label in records.labels] == ["test wren"] * 2 + [
        "train wren"
    ] * 2
    (tmp_path / "test-000.tar").rename(tmp_path / "0.tar")
    assert set(Shards(str(tmp_path)).load().splits) == {"validation"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"0_png": png(0)}, "has no label"),
        ({"a/0_png": png(0), "a/0_json": {"class": "a"}}, "has no label"),
        ({"0_txt": b"words"}, "holds no image"),
        ({"0_png": png(0), "0_json": b"[1]"}, "cannot be read as a shard"),
        ({"0_png": png(0), "0_json": b"[" * 10_000}, "cannot be read as a shard"),
    ],
)
def test_bad_shards_are_named(tmp_path, content, said):
    with pytest.raises(DataError, match=said):
        write(tmp_path / "bad.tar", **content).load()


def test_damaged_images_and_archives_are_named(tmp_path):
    bad = write(tmp_path / "bad.tar", **{"a/0_png": b"no picture", "b/1_png": png(0)})
    with pytest.raises(DataError, match=r"0\.png in .*bad\.tar"):
        bad.load().source.read(0)
    (tmp_path / "worse.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(DataError, match="uncompressed"):
        Shards(str(tmp_path / "worse.tar")).load()
