"""Indexing: what is new is added, what changed replaced, what is gone removed, and no vector is
made twice."""

import os

import numpy as np
import pytest
from tests.runs import drawn_run

from vicinal.data import ImageTransform, Table, open_path
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, SmallConvNet
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.decisions import apply_decisions
from vicinal.retrieval.indexing import index


@pytest.fixture
def bring(image_run, listener):
    """``bring(path, ..., setting=...)``: index with the image run; what was done, and the snapshot
    after it."""

    def call(*paths, **settings):
        done = index(image_run, paths=[str(path) for path in paths], **settings, console=listener)
        images = [str(path) for path in paths if path.is_dir()]
        return done, CollectionDirectory.of(image_run, images=images).snapshot()

    return call


def counts(done):
    return done.added, done.replaced, done.removed, done.embedded


def by_path(snapshot):
    return {item.path: (item.id, snapshot.vector(item.id)) for item in snapshot.items}


def test_vectors_are_those_of_the_encoder_and_nothing_changed_makes_no_generation(
    bring, image_run, photographs
):
    """Also beside a picture that cannot be read, in the middle of a batch."""
    embedded = Encoder.load(image_run).embed(open_path(str(photographs)).load())
    names = (embedded.records.source.name(row) for row in range(12))
    expected = dict(zip(names, embedded.vectors, strict=True))
    (photographs / "b" / "01.png").write_bytes(b"no image")
    done, snapshot = bring(photographs, batch_size=4, skip_corrupt=True)
    assert counts(done) == (11, 0, 0, 11) and done.generation == 1
    again, _ = bring(photographs, skip_corrupt=True)
    assert counts(again) == (0, 0, 0, 0) and again.generation == 1
    for item in snapshot.items:
        assert np.allclose(snapshot.vector(item.id), expected[item.path], atol=1e-6)
        assert item.label == item.path[0]


def test_a_run_on_regions_finds_them_again(tmp_path, photographs, listener):
    """Under the table's own names of columns; the corrected table is trained on as it is."""
    lines = [f"{name}/{row:02d}.png,{name},2,2,{8 + row},9" for row, name in enumerate("abcd" * 3)]
    table = photographs / "list.csv"
    table.write_text("\n".join(["file,bird,x,y,w,h", *lines]))
    data = Table(str(table), test=0.0, label="bird", image="file", margin=0.25)
    network = Embedder(SmallConvNet(3, (4, 8)), 6)
    run = drawn_run(tmp_path / "run", network, ImageTransform(size=16, resize=16), data, 0.5)
    assert index(run, console=listener).items == 12
    snapshot = CollectionDirectory.of(run).snapshot()
    records = data.load()
    embedded = Encoder.load(run).embed(records)
    for row, item in enumerate(snapshot.items):
        assert item.label == "abcd"[row % 4]
        assert snapshot.image(item.id) == records.source.read(row)
        assert np.allclose(snapshot.vector(item.id), embedded.vectors[row], atol=1e-6)
    decisions = tmp_path / "decisions.csv"
    decisions.write_text(f'path,label\n"{snapshot.items[0].path}",d\n')
    (tmp_path / "labels.csv").write_text(apply_decisions(snapshot, decisions).table)
    again = open_path(str(tmp_path / "labels.csv")).load()
    assert again.source.read(0) == records.source.read(0)
    assert again.classes[again.labels[0]] == "d"


def test_indexing_again_follows_the_folder(bring, photographs, draw):
    """Ids are never used again; what is moved or copied is not embedded again."""
    _, before = bring(photographs)
    draw(photographs / "a" / "new.png", 100)
    draw(photographs / "b" / "01.png", 101)
    draw(photographs / "c" / "copy.png", 0)
    (photographs / "c" / "02.png").rename(photographs / "d" / "moved.png")
    (photographs / "d" / "11.png").unlink()
    done, after = bring(photographs)
    assert counts(done) == (3, 1, 2, 2) and done.items == 13
    draw(photographs / "a" / "last.png", 102)
    assert by_path(bring(photographs)[1])["a/last.png"][0] == 15
    old = by_path(before)
    new = by_path(after)
    assert [new[name][0] for name in ("a/new.png", "c/copy.png", "d/moved.png")] == [12, 13, 14]
    assert "c/02.png" not in new and after.item(14).label == "d"
    assert np.array_equal(new["c/copy.png"][1], new["a/00.png"][1])
    for path in new.keys() & old.keys():
        same = np.array_equal(new[path][1], old[path][1])
        assert new[path][0] == old[path][0] and same == (path != "b/01.png")


def test_another_label_alone_makes_a_generation_but_no_vector(bring, photographs, tmp_path):
    table = photographs / "table.csv"
    table.write_text("path,label\na/00.png,wren\n")
    bring(table)
    table.write_text("path,label\na/00.png,jay\n")
    done, snapshot = bring(table)
    assert done.embedded == 0 and done.generation == 2 and snapshot.item(0).label == "jay"


def test_places_are_kept_apart_and_taken_out_by_name(bring, photographs, tmp_path, draw):
    draw(tmp_path / "more" / "e" / "1.png", 200)
    bring(photographs)
    done, snapshot = bring(tmp_path / "more")
    assert done.items == 13 and len(snapshot.places) == 2
    assert snapshot.image(12).size == (24, 20)
    draw(photographs / "a" / "new.png", 100)
    draw(tmp_path / "more" / "e" / "2.png", 201)
    done, _ = bring(photographs, tmp_path / "more")
    assert counts(done) == (2, 0, 0, 2)
    done, snapshot = bring(remove=[str(photographs)])
    assert done.removed == 13 and [item.path for item in snapshot.items] == ["e/1.png", "e/2.png"]
    with pytest.raises(ConfigError, match="place of the collection"):
        bring(remove=[str(photographs)])


def test_without_a_path_the_runs_own_data_are_indexed(bring):
    """`vicinal clean` indexes them whole; `--split` beside that had no effect."""
    assert bring()[0].items == 12
    done, snapshot = bring(split="validation")
    assert counts(done) == (0, 0, 6, 0) and len(snapshot.labels()) == 2
    again, _ = bring()  # the same part again
    assert again.generation == 2 and again.items == 6


def test_feature_vectors_are_embedded_and_may_have_pictures(
    feature_run, vectors_file, listener, tmp_path, draw
):
    done = index(feature_run, [str(vectors_file)], console=listener)
    snapshot = CollectionDirectory.of(feature_run).snapshot()
    assert done.items == 40 and snapshot.dim == 4 and snapshot.item(1).metadata == {"camera": "1"}
    with pytest.raises(DataError, match="--images"):
        snapshot.image(0)
    draw(tmp_path / "pictures" / "a" / "00.png", 0)
    images = str(tmp_path / "pictures")
    done = index(feature_run, [str(vectors_file)], images=images, console=listener)
    assert done.embedded == 0
    named = CollectionDirectory.of(feature_run, images=[images])
    assert named.snapshot().image(0).size == (24, 20)


def test_a_run_on_data_given_in_python_indexes_what_is_named(feature_run, vectors_file, listener):
    feature_run.write_info(feature_run.info | {"data": {"description": {"class": "InMemory"}}})
    with pytest.raises(DataError, match="given in Python"):
        index(feature_run, [], console=listener)
    for added in (40, 0):
        assert index(feature_run, [str(vectors_file)], console=listener).added == added


def test_data_of_the_other_kind_is_rejected(bring, vectors_file):
    with pytest.raises(DataError, match=r"embeds images, got .* holds features"):
        bring(vectors_file)


# -- what cannot be read ---------------------------------------------------------------------------


def test_unreadable_files_are_all_named_and_nothing_is_published(
    bring, photographs, listener, image_run
):
    for name in ("a/00.png", "b/01.png"):  # of equal content
        (photographs / name).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"2 of 12 .*a/00\.png; b/01\.png.*--skip-corrupt"):
        bring(photographs)
    assert not CollectionDirectory(image_run.path / "collection").latest_generation()
    done, _ = bring(photographs, skip_corrupt=True)
    assert done.embedded == 0, "what was embedded before the error is kept"
    assert done.items == 10 and done.unreadable == ["a/00.png", "b/01.png"]
    (photographs / "c" / "02.png").write_bytes(b"no image any more")
    done, snapshot = bring(photographs, skip_corrupt=True)
    assert done.removed == 1 and "c/02.png" not in by_path(snapshot)


def test_a_link_that_leads_out_is_not_read(bring, photographs, tmp_path, draw):
    (photographs / "a" / "link.png").symlink_to(draw(tmp_path / "secret.png", 300))
    with pytest.raises(DataError, match="leads out"):
        bring(photographs)


def test_names_that_are_no_text_are_indexed_and_known_again(bring, photographs):
    odd = photographs.rename(photographs.with_name(os.fsdecode(b"caf\xe9")))
    (odd / "a" / "00.png").rename(odd / "a" / os.fsdecode(b"caf\xe9.png"))
    _, snapshot = bring(odd)
    assert any("\udce9" in item.path for item in snapshot.items)
    assert bring(odd)[0].generation == 1


# -- interruption ----------------------------------------------------------------------------------


def test_an_interrupted_indexing_goes_on_where_it_was(bring, photographs, listener, image_run):
    listener.stop_after = 8
    with pytest.raises(KeyboardInterrupt):
        bring(photographs, batch_size=4)
    assert not CollectionDirectory(image_run.path / "collection").latest_generation()
    listener.stop_after = None
    done, _ = bring(photographs, batch_size=4)
    assert done.embedded == 4 and done.items == 12
    assert ("embedding", 12, 8) in listener.titles
    assert not list((image_run.path / "collection").glob("embedded-*"))
