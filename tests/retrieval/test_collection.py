"""A snapshot never changes; the pointer alone says which is the newest; pictures are read below
their place."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.arguments import describe
from vicinal.data import Glyphs
from vicinal.errors import ConfigError, DataError, RunError
from vicinal.evaluation.encoder import Encoder
from vicinal.retrieval import collection as module
from vicinal.retrieval.collection import CollectionDirectory, publish
from vicinal.retrieval.items import Item, Place
from vicinal.run_directory import model_fingerprint


def made(path, count=20, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)
    items = [
        Item(2 * row, f"{row}.png", "ab"[row % 2], {"side": "left"} if row < 5 else {})
        for row in range(count)
    ]
    publish(path, items, vectors, dim=4)
    return vectors


@pytest.fixture
def vectors(tmp_path):
    return made(tmp_path)


@pytest.fixture
def collection(tmp_path, vectors):
    return CollectionDirectory.open(tmp_path)


@pytest.fixture
def snapshot(collection):
    return collection.snapshot()


def test_what_was_written_is_read_and_cannot_be_written(snapshot, vectors):
    shape = snapshot.generation, snapshot.dim, snapshot.metric, len(snapshot)
    assert shape == (1, 4, "euclidean", 20)
    assert np.array_equal(snapshot.vectors, vectors)
    assert np.array_equal(snapshot.vector(6), vectors[3])
    assert snapshot.item(6).path == "3.png" and snapshot.labels() == {"a": 10, "b": 10}
    with pytest.raises(ValueError, match="read-only"):
        snapshot.vectors[0, 0] = 1


def test_search_is_narrowed_and_spares_what_is_excluded(snapshot, vectors):
    assert snapshot.search(vectors[:2], 1)[1][0].item.id == 2
    found = snapshot.search(vectors[:1], 20, where={"label": "a", "side": "left"}, exclude=[0])[0]
    assert {match.item.id for match in found} == {4, 8}
    assert [match.distance for match in found] == sorted(match.distance for match in found)
    assert snapshot.search(vectors[:1], 5, where={"side": "right"}) == [[]]


def test_other_labels_are_found_and_those_of_the_data_stay(snapshot, vectors):
    assert snapshot.relabeled({}) is snapshot
    labels = {6: "new", 8: "b", 99: "of nothing here"}
    other = snapshot.relabeled(labels)
    assert other.labels() == {"a": 9, "b": 10, "new": 1} and snapshot.labels() == {"a": 10, "b": 10}
    (near,) = other.search(vectors[:1], 5, where={"label": "new"})
    assert [match.item.id for match in near] == [6]
    assert other.search(vectors[3:4], 1)[0][0].item.label == "new"
    assert snapshot.search(vectors[3:4], 1)[0][0].item.label == "b"


def test_a_snapshot_outlives_its_files_and_a_generation_is_opened_once(
    collection, snapshot, vectors, tmp_path
):
    assert collection.snapshot() is snapshot
    for seed in (1, 2, 3):
        made(tmp_path, seed=seed)
    assert not snapshot.folder.exists() and collection.snapshot().generation == 4
    assert snapshot.search(vectors[:1], 1)[0][0].distance == 0


def test_readers_beside_a_writer_see_whole_generations_only(tmp_path):
    """Each generation has as many items as its number says; none is ever seen with another's
    vectors."""

    def write(number):
        items = [Item(row, str(row), None) for row in range(number)]
        publish(tmp_path, items, np.full((number, 2), float(number)), dim=2)

    def read():
        while (snapshot := CollectionDirectory.open(tmp_path).snapshot()).generation < 30:
            assert len(snapshot) == snapshot.generation == snapshot.vectors[-1, 0]

    write(1)
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for number in range(2, 31):
            write(number)
        for reader in readers:
            reader.result()


def test_a_generation_that_is_removed_while_it_is_opened_gives_way_to_the_newest(
    collection, tmp_path, monkeypatch
):
    lines = module.Lines

    def late(path):
        monkeypatch.setattr(module, "Lines", lines)
        made(tmp_path, seed=1)
        made(tmp_path, seed=2)
        return lines(path)

    monkeypatch.setattr(module, "Lines", late)
    assert collection.snapshot().generation == 3


def test_an_empty_collection_answers_with_nothing(tmp_path):
    publish(tmp_path, [], np.empty((0, 4)), dim=4)
    snapshot = CollectionDirectory.open(tmp_path).snapshot()
    assert snapshot.search(np.zeros((2, 4), np.float32), 3) == [[], []] and not snapshot.labels()


def test_errors_say_what_to_do(snapshot, tmp_path):
    with pytest.raises(RunError, match="vicinal index RUN"):
        CollectionDirectory.open(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no item 1 among its 20"):
        snapshot.item(1)
    query = np.zeros((1, 4), np.float32)
    with pytest.raises(DataError, match=r"\[q 4\].*\[1, 3\]"):
        snapshot.search(query[:, :3], 1)
    with pytest.raises(ConfigError, match="k = 0"):
        snapshot.search(query, 0)
    with pytest.raises(DataError, match="did you mean 'side'"):
        snapshot.search(query, 1, where={"sides": "left"})


def test_a_picture_is_read_below_its_place_only(collect, draw, tmp_path):
    root = tmp_path / "root"
    draw(root / "0.png", 0)
    (root / "link.png").symlink_to(draw(tmp_path / "secret.png", 1))
    outside = ["link.png", "../secret.png", "/etc/passwd", "a/../../secret.png"]
    paths = ["0.png", "gone.png", *outside]
    snapshot = collect(np.zeros((6, 2)), [None] * 6, path=paths, root=root)
    assert snapshot.image(0).size == (24, 20)
    with pytest.raises(DataError, match="is missing"):
        snapshot.image(1)
    for id in range(2, 6):
        with pytest.raises(DataError, match="leads out"):
            snapshot.image(id)


def picture_of(collection, place, path):
    publish(collection, [Item(0, path, None)], np.zeros((1, 2)), dim=2, places=[place])
    return CollectionDirectory.open(collection).snapshot().image(0)


def test_a_data_set_without_files_gives_its_pictures(tmp_path):
    data = Glyphs()
    records = data.load()
    place = Place("glyphs", None, description=describe(data))
    assert np.array_equal(
        picture_of(tmp_path, place, records.source.name(7)), records.source.read(7)
    )
    with pytest.raises(DataError, match="no longer in glyphs"):
        picture_of(tmp_path, place, "nothing of the kind")


def test_a_description_can_name_data_sets_only(tmp_path):
    place = Place("x", None, description={"class": "system", "command": "true"})
    with pytest.raises(ConfigError, match="unknown class 'system'"):
        picture_of(tmp_path, place, "a")


def test_weights_and_preprocessing_both_count(image_run):
    first = model_fingerprint(image_run)
    folder = image_run.path / "collection"
    publish(folder, [], [], dim=6)
    CollectionDirectory.of(image_run)  # a collection that does not say is believed
    publish(folder, [], [], dim=6, facts={"model": first})
    assert CollectionDirectory.of(image_run).snapshot().generation == 2
    text = image_run.model_path.read_text()
    image_run.model_path.write_text(text.replace('"size": 16', '"size": 12'))
    assert model_fingerprint(image_run) != first
    image_run.model_path.write_text(text)
    encoder = Encoder.load(image_run)
    with torch.no_grad():
        encoder.embedder.head.weight.add_(1)
    encoder.save_weights(image_run)
    with pytest.raises(RunError, match="another model"):
        CollectionDirectory.of(image_run).snapshot()


def test_rows_of_length_1_are_multiplied_where_they_lie(collect):
    """A memory map larger than memory must not be copied."""
    rows = np.random.default_rng(0).standard_normal((1000, 16))
    snapshot = collect(rows / np.linalg.norm(rows, axis=1, keepdims=True), [None] * 1000)
    snapshot.search(np.array(snapshot.vectors[:1]), 3)
    assert snapshot._gallery.proposal.rows.data_ptr() == snapshot.vectors.ctypes.data


@pytest.fixture
def compacted(collect, monkeypatch):
    """Classes of 30 rows, and the same rows without bits; a batch is compared with all rows."""
    monkeypatch.setattr(module, "_LARGE", 500)
    monkeypatch.setattr(module, "_LEAST", 5)
    monkeypatch.setattr(module, "_SAMPLE", 20)
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((40, 70)), 30, axis=0)
    rows += 0.5 * rng.standard_normal(rows.shape)
    return collect(rows, ["c" if row < 5 else "ab"[row % 2] for row in range(len(rows))])


def found(snapshot, vectors, k, **settings):
    return [
        [(match.item.id, round(match.distance, 4)) for match in near]
        for vector in vectors
        for near in snapshot.search(vector[None], k, **settings)
    ]


def test_bits_of_a_large_collection_propose_what_exact_search_finds(compacted, monkeypatch):
    asked = np.array(compacted.vectors[::100])
    settings = [{}, {"where": {"label": "a"}, "exclude": [6, 8]}, {"where": {"label": "c"}}]
    exact = [found(compacted, asked, 10, **setting) for setting in settings]
    monkeypatch.setattr(module, "_LARGE", 5000)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        assert [found(compacted, asked, 10, **setting) for setting in settings] == exact
    monkeypatch.setattr(module, "_LARGE", 500)
    far = found(compacted, asked[:1], len(compacted))
    assert compacted.compact() >= 0.99 and compacted.compact() == compacted._bits.recall
    assert 20 <= compacted._bits.count <= 60, "about a class, of 5 at least"
    assert [found(compacted, asked, 10, **setting) for setting in settings] == exact
    assert found(compacted, asked[:1], 400) == [far[0][:400]], "more are proposed where k is large"
    again = CollectionDirectory.open(compacted.folder.parent).snapshot()
    assert again._bits.count == compacted._bits.count
    assert found(again, asked, 10) == exact[0]


def test_vectors_do_not_stay_in_memory_where_bits_propose(compacted):
    compacted.compact()
    again = CollectionDirectory.open(compacted.folder.parent).snapshot()
    again.search(np.zeros((1, 70)), 10)
    maps = Path("/proc/self/smaps").read_text().split(f"{again.folder / module.VECTORS}\n")
    resident = [int(part.split("Rss:")[1].split()[0]) for part in maps[1:]]
    assert min(resident) == 0, "the other one is of the snapshot that compared all rows"


def test_equal_rows_are_no_more_proposals_and_come_by_id(compacted, collect):
    compacted.compact()
    rows = np.array(compacted.vectors)
    rows[100:700] = rows[100]
    snapshot = collect(rows, [None] * len(rows))
    bits = module.Bits.of(snapshot.vectors)
    bits.count = 40
    assert bits.proposed(rows[100], 10, np.zeros(len(rows), bool)).tolist() == [*range(100, 140)]


def test_vectors_that_bits_do_not_order_are_compared_whole(collect, monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 500)
    rows = np.random.default_rng(0).standard_normal((600, 2))
    snapshot = collect(rows, [None] * len(rows))
    assert snapshot.compact() is None and snapshot._bits is None


def test_bits_of_other_rows_are_told(compacted):
    compacted.compact()
    np.savez(compacted.folder / module.BITS, mean=0, columns=np.zeros((2, 7), np.uint64))
    again = CollectionDirectory.open(compacted.folder.parent).snapshot()
    with pytest.raises(RunError, match="does not fit"):
        again.search(np.zeros((1, 70)), 1)
