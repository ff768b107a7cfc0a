"""A collection that somebody else made: nothing is written, removed, read or asked outside of it
unasked."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal import files
from vicinal.errors import ConfigError, DataError, RunError, VicinalError
from vicinal.retrieval.collection import CollectionDirectory, Place
from vicinal.retrieval.generations import publish
from vicinal.retrieval.indexing import Request, index
from vicinal.retrieval.store import Item
from vicinal.run_directory import RunDirectory


def everything(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def indexed(image_run, photographs, listener):
    index(image_run, Request([str(photographs)]), listener)
    return image_run


@pytest.mark.parametrize(
    "name", ["archives", ".lock", ".writer.json", "journal.bin", "generation-00000002", "."]
)
@pytest.mark.parametrize("own", [True, False])
def test_indexing_follows_no_link_out_of_a_collection(
    name, own, indexed, photographs, listener, tmp_path, draw
):
    """Issue 23: old generations below ``collection/archives`` were removed through a link."""
    home = tmp_path / "home"
    draw(home / "photos" / "1.png", 0)
    (home / "generation-00000001").mkdir()
    (home / "notes.txt").write_text("mine")
    before = everything(home)
    collection = indexed.path / "collection"
    if not own:
        collection = collection.rename(tmp_path / "elsewhere")
    if name == ".":
        collection.rename(tmp_path / "moved")
        collection.symlink_to(home)
    else:
        target = home / "notes.txt" if name in (".lock", ".writer.json", "journal.bin") else home
        (collection / name).unlink(missing_ok=True)
        (collection / name).symlink_to(target)
    draw(photographs / "a" / "new.png", 100)
    if name == "." and not own:
        index(
            indexed, Request([str(photographs)]), listener, collection=collection
        )  # which the user named
    else:
        with pytest.raises(DataError, match="is a link to"):
            _index_again(indexed, photographs, listener, None if own else collection)
    assert before.items() <= everything(home).items() and (home / "photos").is_dir()


def _index_again(run, photographs, listener, collection):

    index(RunDirectory.open(run.path), Request([str(photographs)]), listener, collection=collection)


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """``foreign(place)``: a collection of one picture, made by another user."""

    def make(place, path, **about):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "theirs"))
        publish(tmp_path / "c", [Item(0, path, None)], np.ones((1, 2)), dim=2, places=[place])
        file = tmp_path / "c" / "generation-00000001" / "about.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | about))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
        return tmp_path / "c"

    return make


def test_pictures_outside_a_foreign_collection_need_the_users_word(foreign, tmp_path):
    Image.new("RGB", (4, 3)).save(tmp_path / "secret.png")
    collection = foreign(Place("/", "folder", "/"), str(tmp_path / "secret.png").lstrip("/"))
    snapshot = CollectionDirectory.open(collection).snapshot()
    assert snapshot.search(np.ones((1, 2), np.float32), 1)[0][0].distance == 0, (
        "what it holds itself can be searched"
    )
    with pytest.raises(DataError, match="--trust"):
        snapshot.image(0)
    assert CollectionDirectory.open(collection, trust=True).snapshot().image(0).size == (4, 3)


@pytest.mark.parametrize("root", ["../outside", "archives/../../outside"])
def test_a_root_that_climbs_out_needs_it_too(root, foreign, tmp_path, draw):
    draw(tmp_path / "outside" / "1.png", 0)
    with pytest.raises(DataError, match="--trust"):
        CollectionDirectory.open(foreign(Place("x", "archive", root), "1.png")).snapshot().image(0)


def test_pictures_inside_a_foreign_collection_are_shown(foreign, tmp_path, draw):
    draw(tmp_path / "c" / "archives" / "x" / "1.png", 0)
    collection = foreign(Place("/theirs/x.zip", "archive", "archives/x"), "1.png")
    assert CollectionDirectory.open(collection).snapshot().image(0).size == (24, 20)


def test_no_engine_is_asked_unasked(foreign):
    store = {"address": "http://evil.example:19530", "table": "t", "index": "FLAT", "recall": None}
    snapshot = CollectionDirectory.open(
        foreign(Place("x", "features", None), "a", store=store)
    ).snapshot()
    with pytest.raises(DataError, match=r"the engine at http://evil\.example:19530.*--trust"):
        snapshot.search(np.ones((1, 2), np.float32), 1)


def test_indexing_takes_over_foreign_places_only_where_told(
    indexed, photographs, listener, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another user"))
    with pytest.raises(ConfigError, match=f"{photographs}.*--trust"):
        index(indexed, Request(), listener)
    assert index(indexed, Request(trust=True), listener).items == 12
    snapshot = CollectionDirectory.of(indexed).snapshot()
    assert snapshot.trusted and snapshot.generation == 2, (
        "written once more, with the user's own seal"
    )


def test_who_has_no_place_for_a_secret_trusts_by_word(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    publish(
        tmp_path, [Item(0, "a", None)], np.ones((1, 2)), dim=2, places=[Place("/", "folder", "/")]
    )
    assert not CollectionDirectory.open(tmp_path).snapshot().trusted


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
    ("current.json", text("[]")),
    ("current.json", text('{"format": 1}')),
    ("current.json", text('{"format": 1, "generation": "../.."}')),
    ("about.json", cut),
    ("about.json", pipe),
    ("about.json", text("[" * 100_000)),
    ("about.json", text("{}")),
    ("about.json", text('{"generation": 1, "dim": "x", "metric": 1, "places": []}')),
    (
        "about.json",
        text('{"generation": 1, "dim": 2, "metric": "euclidean", "places": [{"name": 1}]}'),
    ),
    ("about.json", text('{"generation": 1, "dim": 2, "metric": "euclidean", "places": ["/"]}')),
    (
        "about.json",
        text('{"generation": 1, "dim": 2, "metric": "euclidean", "places": [], "store": "a:1"}'),
    ),
    (
        "about.json",
        text(
            '{"generation": 1, "dim": 2, "metric": "euclidean", "places": [], "store": {"table": '
            '"x"}}'
        ),
    ),
    ("items.jsonl", pipe),
    ("items.jsonl", cut),
    ("items.jsonl", text('{"id": "x", "path": 7, "label": null}\n')),
    ("items.jsonl", text("\xff\n")),
    ("vectors.npy", cut),
    ("vectors.npy", pipe),
    ("vectors.npy", text("no array")),
    ("vectors.npy", lambda path: path.write_bytes(path.read_bytes().replace(b"}", b"{", 1))),
    ("vectors.npy", lambda path: path.write_bytes(path.read_bytes().replace(b"<f4", b"<i4", 1))),
    ("items.jsonl", text('{"id": 99999999999999999999, "path": "a", "label": null}\n')),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_damage_is_named_with_the_file_and_what_to_do(name, damage, tmp_path):
    items = [Item(row, f"{row}.png", None) for row in range(3)]
    publish(tmp_path, items, np.ones((3, 2)), dim=2, places=[Place("x", "features", None)])
    damage(next(tmp_path.rglob(name)))
    with pytest.raises(VicinalError, match=r"[Rr]emove|[Rr]estore|makes one") as caught:
        CollectionDirectory.open(tmp_path).snapshot()
    assert isinstance(caught.value, DataError | RunError)
    assert name in str(caught.value) or Path(name).stem in str(caught.value)


def test_a_thread_of_pixels_and_a_pipe_are_left_out_and_named(indexed, photographs, listener):
    """Issue 23: 101 bytes of 20000 x 1 pixels took 6.6 GB where the shorter side was brought to
    256."""
    Image.new("L", (20_000, 1)).save(photographs / "a" / "thread.png")
    os.mkfifo(photographs / "a" / "pipe.png")
    done = index(indexed, Request([str(photographs)], skip_corrupt=True), listener)
    assert done.items == 12 and len(done.unreadable) == 2
    with pytest.raises(DataError, match=r"thread\.png"):
        index(indexed, Request([str(photographs)]), listener)


@pytest.mark.parametrize("make", [lambda path: Image.new("L", (20_000, 1)).save(path), os.mkfifo])
def test_neither_can_be_searched_by(make, indexed, tmp_path):
    from vicinal.retrieval.model import load
    from vicinal.retrieval.query import query_of

    make(tmp_path / "query.png")
    snapshot = CollectionDirectory.of(indexed).snapshot()
    with pytest.raises(DataError, match=r"query\.png cannot be read"):
        query_of(snapshot, load(indexed.path, device="cpu"), files=[tmp_path / "query.png"])


def test_opening_a_run_and_its_collection_walks_for_links_once(indexed, monkeypatch):
    walked = []
    monkeypatch.setattr(files.os, "walk", lambda root: walked.append(root) or iter(()))
    CollectionDirectory.of(RunDirectory.open(indexed.path))
    assert walked == [indexed.path.resolve()]
    CollectionDirectory.open(indexed.path / "collection")  # named by itself
    assert walked[1:] == [(indexed.path / "collection").resolve()]
