"""A collection whose searches Milvus answers: the same items, kept in step, generation by generation."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.search.collection import CollectionDirectory
from vicinal.search.engine import wanted_engine
from vicinal.search.indexing import index
from vicinal.search.planning import Request

pytest.importorskip("milvus_lite")
pytestmark = pytest.mark.filterwarnings("default")  # the engine's own, which are not ours to mend


@pytest.fixture
def bring(image_run, photographs, listener, tmp_path):
    held = []

    def call(**settings):
        done = index(image_run, Request([str(photographs)], **settings), listener)
        held.append(CollectionDirectory.of(image_run.path).snapshot())
        return done, held[-1]

    yield call
    for snapshot in held:
        snapshot.close()


def found(snapshot, **settings):
    return [
        [(match.item.path, round(match.distance, 3)) for match in matches]
        for matches in snapshot.search(np.array(snapshot.vectors()[:3]), 5, **settings)
    ]


def test_both_engines_find_the_same(bring, tmp_path):
    _, flat = bring()
    done, milvus = bring(store=str(tmp_path / "store.db"))
    assert milvus.generation == 2 and done.embedded == 0 and done.recall is None
    assert milvus.about["store"]["address"] == str(tmp_path / "store.db")
    assert found(flat) == found(milvus)
    assert found(flat, where={"label": "b"}) == found(milvus, where={"label": "b"})
    assert found(flat, exclude=[0, 5]) == found(milvus, exclude=[0, 5])


def test_indexing_again_keeps_the_engine_and_brings_it_along(bring, photographs, tmp_path, draw):
    _, before = bring(store=str(tmp_path / "store.db"))
    assert bring()[0].generation == 1, "nothing changed, and the store is still the same"
    old = found(before)
    draw(photographs / "a" / "00.png", 100)
    draw(photographs / "a" / "new.png", 101)
    (photographs / "b" / "01.png").unlink()
    done, after = bring()
    assert (done.added, done.replaced, done.removed) == (1, 1, 1) and after.about["store"] is not None
    assert found(before) == old, "a snapshot does not change"
    ids = {match.item.id for match in after.search(np.array(after.vectors()[:1]), 50)[0]}
    assert ids == {item.id for item in after.items()}
    for item in after.items():
        assert after.search(after.vector(item.id)[None], 1)[0][0].distance < 1e-3


def test_another_index_reports_its_recall_and_the_old_table_goes(bring, photographs, tmp_path, draw):
    from pymilvus import MilvusClient

    address = str(tmp_path / "store.db")
    bring(store=address)
    done, snapshot = bring(store_index="hnsw")
    assert done.recall == 1.0 and snapshot.about["store"]["index"] == "HNSW"
    client = MilvusClient(address)
    assert len(client.list_collections()) == 2, "readers of the generation before still need theirs"
    draw(photographs / "a" / "new.png", 101)
    bring()
    assert client.list_collections() == [snapshot.about["store"]["table"]]
    client.close()
    assert bring(store="flat")[1].about["store"] is None


def test_settings_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="is for a store in Milvus"):
        wanted_engine(None, "HNSW", None, tmp_path, "m")
    with pytest.raises(ConfigError, match="did you mean 'HNSW'"):
        wanted_engine("store.db", "HNWS", None, tmp_path, "m")


def test_a_url_stays_a_url_and_a_folder_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert wanted_engine("http://host:19530", "ivf", None, tmp_path, "m").address == "http://host:19530"
    made = wanted_engine("store.db", "ivf", None, tmp_path, "m")
    assert made.address == str(tmp_path / "store.db") and made.index == "IVF_FLAT"
