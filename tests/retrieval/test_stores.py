"""Milvus and LanceDB behind the same interface: generations beside each other, filters, restarts;
of the embedded Milvus one process at a time."""

import socket
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from vicinal.errors import RunError
from vicinal.retrieval import stores as module
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.indexing import index
from vicinal.retrieval.items import Item
from vicinal.retrieval.stores import _filter, open_store, write_store

pytest.importorskip("milvus_lite")
pytest.importorskip("lancedb")
pytestmark = pytest.mark.filterwarnings("default")  # the engine's own, which are not ours to mend

COUNT = 60
DIM = 8
VECTORS = np.random.default_rng(0).standard_normal((COUNT, DIM)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
ITEMS = [Item(row, f'a "quoted" \\ path, {row}.png', "ab"[row % 2]) for row in range(COUNT)]


@pytest.fixture(params=["store.db", "store.lance"])
def either(request, tmp_path):
    return str(tmp_path / request.param)


def ids(found):
    return [[id for id, _ in near] for near in found]


def test_what_an_ended_writer_left_is_written_anew_and_a_reopened_store_answers(either, tmp_path):
    for rows in (slice(0, 20), slice(30, 50)):
        kept = write_store(either, tmp_path / "c", 1, ITEMS[rows], VECTORS[rows], DIM)
    with closing(open_store(either, kept)) as store:
        found = store.search(VECTORS[[35]], COUNT, where={})
    assert sorted(ids(found)[0]) == list(range(30, 50)) and ids(found)[0][0] == 35
    with pytest.raises(RunError, match="no table birds"):
        open_store(either, kept | {"table": "birds"})


def test_a_value_cannot_become_a_part_of_the_filter():
    made = _filter({"camera": '" or id > 0 or "'}, [])
    assert made == 'attributes["camera"] == "\\" or id > 0 or \\""'
    assert _filter({"label": "a"}, [7]) == 'id not in [7] and attributes["label"] == "a"'


@pytest.mark.slow
def test_a_second_process_is_rejected_clearly(tmp_path):
    address = str(tmp_path / "store.db")
    kept = write_store(address, tmp_path / "c", 1, ITEMS[:3], VECTORS[:3], DIM)
    code = f"from vicinal.retrieval.stores import MilvusStore\nMilvusStore({address!r}, 'birds')"
    with closing(open_store(address, kept)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "RunError" in done.stderr and "Only one process at a time" in done.stderr


@pytest.fixture
def server(tmp_path):
    """A server process, as a cluster would be: everything by URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"-m milvus_lite server --host 127.0.0.1 --port {port} --data-dir"
    command = [sys.executable, *words.split(), str(tmp_path / "served.db")]
    process = subprocess.Popen(command)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.mark.slow
def test_the_same_code_works_on_a_url(server, tmp_path):
    kept = write_store(server, tmp_path / "c", 1, ITEMS, VECTORS, DIM)
    with closing(open_store(server, kept)) as store:
        assert ids(store.search(VECTORS[[9]], 1, where={})) == [[9]]


@pytest.fixture
def bring(image_run, photographs, listener, tmp_path):
    held = []

    def call(**settings):
        done = index(image_run, [str(photographs)], **settings, console=listener)
        store = settings.get("store")
        held.append(CollectionDirectory.of(image_run, engine=store).snapshot())
        return done, held[-1]

    yield call
    for snapshot in held:
        if snapshot._engine is not None:
            snapshot._engine.close()


def found(snapshot, **settings):
    return [
        [(match.item.path, round(match.distance, 3)) for match in matches]
        for matches in snapshot.search(np.array(snapshot.vectors[:3]), 5, **settings)
    ]


def test_engines_find_what_the_folder_finds(bring, either):
    _, flat = bring()
    done, other = bring(store=either)
    assert other.generation == 2 and done.embedded == 0 and done.recall is None
    assert other.about["store"]["address"] == either
    assert found(flat) == found(other)
    assert found(flat, where={"label": "b"}) == found(other, where={"label": "b"})
    assert found(flat, exclude=[0, 5]) == found(other, exclude=[0, 5])
    assert found(flat, where={"path": "b/01.png"}) == found(other, where={"path": "b/01.png"})


def test_indexing_again_brings_the_engine_along(bring, photographs, either, draw):
    _, before = bring(store=either)
    assert bring(store=either)[0].generation == 1, "nothing changed"
    old = found(before)
    draw(photographs / "a" / "00.png", 100)
    draw(photographs / "a" / "new.png", 101)
    (photographs / "b" / "01.png").unlink()
    done, after = bring(store=either)
    assert (done.added, done.replaced, done.removed) == (1, 1, 1)
    assert found(before) == old, "a snapshot does not change"
    ids = {match.item.id for match in after.search(np.array(after.vectors[:1]), 50)[0]}
    assert ids == {item.id for item in after.items}
    for item in after.items:
        assert after.search(after.vector(item.id)[None], 1)[0][0].distance < 1e-3


def test_labels_that_the_engine_does_not_know_are_found_without_it(bring, tmp_path):
    _, snapshot = bring(store=str(tmp_path / "store.db"))
    other = snapshot.relabeled({6: "new"})
    [near] = other.search(snapshot.vector(6)[None], 5, where={"label": "new"})
    assert [match.item.id for match in near] == [6]


def test_many_rows_have_an_index_whose_recall_is_told_and_the_old_table_goes(
    bring, photographs, either, draw, monkeypatch
):
    bring(store=either)
    monkeypatch.setattr(module, "_MANY", 1)
    draw(photographs / "a" / "more.png", 102)
    done, snapshot = bring(store=either)
    kept = snapshot.about["store"]
    assert done.recall == 1.0 and kept["index"] == ("IVF_SQ" if "lance" in either else "HNSW")
    engine = open_store(either, kept)
    assert len(engine.tables()) == 2, "readers of the generation before still need theirs"
    draw(photographs / "a" / "new.png", 101)
    bring(store=either)
    tables = engine.tables()
    assert len(tables) == 2 and kept["table"] in tables
    engine.close()
    assert bring()[1].about["store"] is None


def test_cells_find_what_a_filter_leaves_and_a_value_stays_a_value(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MANY", 1)
    monkeypatch.setattr(module, "_CELLS", 1)
    address = str(tmp_path / "store.lance")
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2000, DIM)).astype(np.float32)
    label = 'it\'s "1", or true'
    items = [Item(row, f"{row}.png", label if row % 100 == 0 else None) for row in range(2000)]
    kept = write_store(address, tmp_path / "c", 1, items, vectors, DIM)
    store = open_store(address, kept)
    near = store.search(vectors[:1], 20, where={"label": label})[0]
    assert {id for id, _ in near} == {*range(0, 2000, 100)} and near[0] == (0, 0.0)
    assert store.search(vectors[:1], 20, where={"label": "' or true or '"}) == [[]]


@pytest.mark.slow
def test_lance_works_in_an_object_store(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    named = {"AWS_ENDPOINT_URL": address, "AWS_ENDPOINT": address, "AWS_ALLOW_HTTP": "true"}
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    for name, value in {**named, **dict.fromkeys(keys, "us-east-1")}.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()  # of another server
    fsspec.filesystem("s3").mkdir("lance-bucket")
    store = "s3://lance-bucket/birds"
    for number in (1, 2, 3):
        kept = write_store(store, tmp_path / "c", number, ITEMS, VECTORS, DIM)
    opened = open_store(store, kept)
    assert len(opened.tables()) == 2
    assert ids(opened.search(VECTORS[[9]], 1, where={"label": "b"})) == [[9]]
    server.stop()
