"""Queries: by file, by id, by label, and several as their mean."""

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.asking import conditions, query_vector
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.indexing import index
from vicinal.retrieval.model import load


@pytest.fixture
def snapshot(indexed):
    return CollectionDirectory.of(indexed).snapshot()


def test_several_are_asked_for_by_their_mean_on_the_sphere(snapshot, image_run, photographs):
    both = snapshot.vector(0) + snapshot.vector(1)
    mean = both / np.linalg.norm(both)
    model = load(image_run.path, device="cpu")
    assert np.allclose(query_vector(snapshot, None, ids=[0, 1]), mean, atol=1e-6)
    paths = [photographs / snapshot.item(id).path for id in (0, 1)]
    assert np.allclose(query_vector(snapshot, model, files=paths), mean, atol=1e-6)


def test_a_label_is_the_mean_of_its_items(snapshot):
    mean = snapshot.vectors[snapshot.rows({"label": "c"})].mean(axis=0)
    query = query_vector(snapshot, None, labels=["c"])
    assert np.allclose(query, mean / np.linalg.norm(mean), atol=1e-6)


def test_feature_runs_are_asked_with_vectors(feature_run, vectors_file, listener, tmp_path):
    index(feature_run, [str(vectors_file)], console=listener)
    snapshot = CollectionDirectory.of(feature_run).snapshot()
    model = load(feature_run.path, device="cpu")
    np.save(tmp_path / "query.npy", np.load(vectors_file)["features"][7])
    vector = query_vector(snapshot, model, files=[tmp_path / "query.npy"])
    assert snapshot.search(vector[None], 1)[0][0].item.id == 7
    width = np.load(vectors_file)["features"].shape[1]
    np.save(tmp_path / "words.npy", np.array(["1.5"] * width))
    np.save(tmp_path / "complex.npy", np.full(width, 1j))
    for name in ("words", "complex"):
        with pytest.raises(DataError, match=rf"{name}\.npy holds no feature"):
            query_vector(snapshot, model, files=[tmp_path / f"{name}.npy"])


@pytest.mark.parametrize("words", [["label"], ["a=1", "a=2"]])
def test_conditions_that_are_none_are_rejected(words):
    with pytest.raises(ConfigError, match="--where"):
        conditions(words)


def test_a_value_may_hold_an_equals_sign():
    assert conditions(["a=b=c"]) == {"a": "b=c"}
