"""Nothing is written, removed, read or asked outside of a collection that nobody named, and damage
is named."""

import os
import re

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError, RunError, VicinalError
from vicinal.retrieval.collection import Access, CollectionDirectory, publish
from vicinal.retrieval.indexing import index
from vicinal.retrieval.items import Item, Place
from vicinal.run_directory import RunDirectory


def everything(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", [".lock", "embedded-x", "generation-00000002", "."])
def test_indexing_follows_no_link_out_of_a_collection(
    name, indexed, photographs, listener, tmp_path, draw
):
    home = draw(tmp_path / "home" / "notes.png", 0).parent
    before = everything(home)
    collection = indexed.path / "collection"
    if name == ".":
        collection.rename(tmp_path / "moved")
        collection.symlink_to(home)
    else:
        (collection / name).unlink(missing_ok=True)
        target = home if name.startswith("gen") else home / "notes.png"
        (collection / name).symlink_to(target)
    draw(photographs / "a" / "new.png", 100)
    with pytest.raises(DataError, match="is a link to"):
        index(RunDirectory.open(indexed.path), [str(photographs)], console=listener)
    assert everything(home) == before


@pytest.mark.parametrize("name", ["archives/2019/a.txt", "generation-00000001/a", "journal.bin"])
def test_a_folder_of_other_things_is_rejected_and_left_as_it_is(
    name, image_run, photographs, listener, tmp_path
):
    mine = tmp_path / "mine"
    (mine / name).parent.mkdir(parents=True)
    (mine / name).write_text("mine")
    with pytest.raises(ConfigError, match=r"neither empty nor a collection.*--collection"):
        index(image_run, [str(photographs)], console=listener, collection=mine)
    assert everything(mine) == {mine / name: b"mine"}


def published(tmp_path, place, path, access):
    publish(tmp_path / "c", [Item(0, path, None)], np.ones((1, 2)), dim=2, places=[place])
    return CollectionDirectory.open(tmp_path / "c", access).snapshot()


@pytest.mark.parametrize("root", ["", "folder/../..", "link"])
def test_pictures_are_read_below_named_folders_only(root, tmp_path, draw):
    draw(tmp_path / "folder" / "1.png", 0)
    (tmp_path / "link").symlink_to(tmp_path)
    place = Place("x", str(tmp_path / root))
    named = Access(images=[str(tmp_path / "folder")])
    snapshot = published(tmp_path, place, "folder/1.png", named)
    assert snapshot.search(np.ones((1, 2), np.float32), 1)[0][0].distance == 0
    assert snapshot.unnamed == [str(tmp_path / root)]
    with pytest.raises(DataError, match=r"neither the run's own data nor named here.*--images"):
        snapshot.image(0)
    place = Place("x", str(tmp_path / "folder"))
    assert published(tmp_path, place, "1.png", named).image(0).size == (24, 20)


def test_a_data_set_elsewhere_is_not_opened(tmp_path):
    data = {"class": "Omniglot", "path": str(tmp_path), "strict": True}
    place = Place("glyphs", None, description=data | {"background": True})
    with pytest.raises(VicinalError):
        published(tmp_path, place, "x", Access()).image(0)


def test_no_engine_is_asked_that_is_not_named(tmp_path):
    store = {"address": "http://evil.example:19530", "table": "t", "index": "FLAT"}
    items = [Item(0, "a", None)]
    publish(tmp_path / "c", items, np.ones((1, 2)), dim=2, facts={"store": store})
    found = CollectionDirectory.open(tmp_path / "c").snapshot()
    assert found.search(np.ones((1, 2), np.float32), 1)[0][0].distance == 0, "by its own vectors"
    with pytest.raises(ConfigError, match="kept in http://evil"):
        CollectionDirectory.open(tmp_path / "c", Access(engine="milvus.db")).snapshot()


def test_places_that_nobody_names_are_not_read_again(
    image_run, photographs, listener, tmp_path, draw
):
    draw(tmp_path / "more" / "e" / "1.png", 200)
    index(image_run, [str(photographs), str(tmp_path / "more")], console=listener)
    with pytest.raises(ConfigError, match=f"nor named here.*vicinal index .*{tmp_path}/more"):
        index(image_run, console=listener)
    assert index(image_run, [str(tmp_path / "more")], console=listener).items == 13


# -- damage
# ------------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def text(content):
    return lambda path: path.write_text(content)


DAMAGE = [
    ("current.json", cut),
    ("current.json", pipe),
    ("current.json", text('{"format": 2, "generation": "../.."}')),
    ("current.json", text('{"format": 9, "generation": 1}')),
    ("about.json", cut),
    ("about.json", text("{}")),
    ("about.json", text('{"generation": 1, "dim": 2, "metric": "euclidean", "places": ["/"]}')),
    ("items.jsonl", pipe),
    ("items.jsonl", cut),
    ("vectors.npy", cut),
    ("vectors.npy", pipe),
    ("vectors.npy", lambda path: path.write_bytes(path.read_bytes().replace(b"<f4", b"<i4", 1))),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damage_is_named_with_the_file_and_what_to_do(name, damage, tmp_path):
    items = [Item(row, f"{row}.png", None) for row in range(3)]
    publish(tmp_path, items, np.ones((3, 2)), dim=2, places=[Place("x", None)])
    damage(next(tmp_path.rglob(name)))
    with pytest.raises(VicinalError, match=r"[Rr]emove|[Rr]estore|makes one") as caught:
        CollectionDirectory.open(tmp_path).snapshot()
    assert isinstance(caught.value, DataError | RunError)
    assert re.search("generation-00000001|current", str(caught.value))
