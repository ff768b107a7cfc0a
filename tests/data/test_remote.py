"""Data behind URLs, by fsspec: over the system's own files, and over an S3 server on loopback."""

import json
import os
import re
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image
from tests import reading

from vicinal import remote
from vicinal.data import Folder, Shards, Table, open_path
from vicinal.data.loader import contents, load_all
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, DataError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of one's own; what a process has listed is forgotten."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote.listed.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def birds(tmp_path):
    for label in range(4):
        for row in range(3):
            file = tmp_path / "birds" / f"class {label}" / f"{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (9, 9), (60 * label, 80 * row, 7)).save(file)
    return tmp_path / "birds"


@pytest.fixture(params=["file", "s3"])
def far(request, birds):
    """The URL of a copy of the pictures."""
    if request.param == "file":
        shutil.copytree(birds, birds.with_name("far"))
        return f"file://{birds.with_name('far')}"
    bucket = request.getfixturevalue("bucket")
    fsspec.filesystem("s3").put(str(birds), f"{bucket}/", recursive=True)
    return f"{bucket}/birds"


def same(found, expected):
    assert found.fingerprint() == expected.fingerprint()
    for row in range(len(expected)):
        pixels = (np.asarray(each.source.read(row)) for each in (found, expected))
        np.testing.assert_array_equal(*pixels)


def filled(cache):
    return [file for file in cache.rglob("*") if file.is_file() and file.stat().st_size]


def test_a_folder_is_that_of_its_copy_and_is_read_once_when_asked_for(far, birds, cache):
    data = open_path(far)
    assert data == Folder(far)
    records = data.load()
    assert not filled(cache)
    records.source.read(1)
    assert [file.name for file in filled(cache)] == ["1.png"]
    same(records, Folder(str(birds)).load())
    filled(cache)[0].write_bytes(filled(cache)[1].read_bytes())  # the cache is what is read now
    again = Folder(far).load()
    assert len({again.source.content(row) for row in range(12)}) == 11


def test_what_is_another_there_is_read_again(birds, cache):
    def read():
        remote.listed.cache_clear()  # as in a new process
        records = Folder(f"file://{birds}").load()
        return records, [records.source.content(row) for row in range(len(records))]

    _, before = read()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(birds / "class 0" / "0.png")
    os.utime(birds / "class 0" / "0.png", (5, 5))
    shutil.rmtree(birds / "class 1")
    records, after = read()
    assert after[1:] == before[1:3] + before[6:]
    assert records.source.read(0).getpixel((0, 0)) == (1, 2, 3)


def test_a_table(far, birds):
    rows = [f"{path.relative_to(birds)},{path.parent.name}" for path in birds.glob("*/*.png")]
    (birds / "birds.csv").write_text("\n".join(["path,label", *rows]))
    system, name = fsspec.core.url_to_fs(far)
    system.put_file(str(birds / "birds.csv"), f"{name}/birds.csv")
    table = open_path(f"{far}/birds.csv")
    assert table == Table(f"{far}/birds.csv")
    same(table.load(), Table(str(birds / "birds.csv")).load())


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_shards_are_read_in_parts(far, birds, tmp_path, cache, monkeypatch, kind):
    near = Folder(str(birds)).load()
    folder = tmp_path / "shards"
    if kind == "tar":
        write_tar(near, folder)
    else:
        write_parquet(near, folder)
    system, name = fsspec.core.url_to_fs(far)
    system.makedirs(f"{name}/shards", exist_ok=True)
    for shard in folder.iterdir():
        system.put_file(str(shard), f"{name}/shards/{shard.name}")
    monkeypatch.setattr(type(system), "get_file", None)  # nothing is downloaded whole

    data = open_path(f"{far}/shards")
    assert data == Shards(f"{far}/shards")
    records = data.load()
    assert not list((cache / "vicinal" / "shards").glob("*.images"))
    assert (contents(records) != 0).all()
    remote.listed.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(type(system), "open", None)  # the index was made once
        again = data.load()
    assert again.fingerprint() == records.fingerprint()
    assert records.classes == near.classes
    rows = [near.names().index(re.sub(r".*\.tar/", "", name)) for name in records.names()]
    transform = ImageTransform(size=8, pad=1, crop="center")
    expected = load_all(near.take(np.array(rows)), transform, 5)
    reading.same(load_all(records, transform, 5), expected)
    assert not filled(cache / "vicinal" / "remote")
    unpacked = list((cache / "vicinal" / "shards").glob("*.images"))
    assert bool(unpacked) == (kind == "parquet")


def write_tar(records, folder):
    folder.mkdir()
    for row, path in enumerate(records.source.paths):
        with tarfile.open(folder / f"part-0000{row % 2}.tar", "a") as archive:
            archive.add(records.source.root / path, path)


def write_parquet(records, folder):
    """Write pictures as a data set of Hugging Face lies there, in two files of small row groups."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder.mkdir()
    files = records.source.paths
    images = [{"bytes": (records.source.root / path).read_bytes(), "path": path} for path in files]
    about = {"info": {"features": {"label": {"names": list(records.classes)}}}}
    for part in range(2):
        mine = slice(6 * part, 6 * part + 6)
        table = arrow.table({"image": images[mine], "label": records.labels[mine]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
        parquet.write_table(table, folder / f"{part}-of-00002.parquet", row_group_size=2)


def test_what_cannot_be_reached_is_named(birds, tmp_path):
    with pytest.raises(DataError, match=r"no data at file:///nowhere/birds: .*Check the path"):
        open_path("file:///nowhere/birds")
    with pytest.raises(ConfigError, match=r"nonsense://there cannot be reached: .*nonsense"):
        open_path("nonsense://there")
    records = Folder(f"file://{birds}").load()
    (birds / "class 0" / "0.png").unlink()
    with pytest.raises(DataError, match=r"file:///.*0\.png cannot be read"):
        records.source.read(0)


@pytest.mark.parametrize("url", ["s3://bucket/../../..", "s3://../..", "file:///../birds", "s3://"])
def test_a_url_never_leads_out_of_the_cache(url, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(ConfigError, match="names no folder or file"):
        open_path(url)
    assert (tmp_path / "mine.txt").read_text() == "kept"


def test_a_client_that_knows_no_size_does_not_read_again(birds, cache, monkeypatch):
    system = fsspec.filesystem("file")
    find = type(system).find

    def unsized(self, *args, **kwargs):
        found = find(self, *args, **kwargs)
        return {name: {**about, "size": None} for name, about in found.items()}

    monkeypatch.setattr(type(system), "find", unsized)
    Folder(f"file://{birds}").load().source.read(1)
    remote.listed.cache_clear()
    Folder(f"file://{birds}").load()
    assert len(filled(cache)) == 1
