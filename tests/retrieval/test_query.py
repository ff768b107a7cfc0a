"""Queries: by file, by id, by label, and several as their mean."""

import json

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.indexing import Request, index
from vicinal.retrieval.model import load
from vicinal.retrieval.query import ask, conditions, query_of


@pytest.fixture
def snapshot(image_run, photographs, listener):
    index(image_run, Request([str(photographs)]), listener)
    return CollectionDirectory.of(image_run).snapshot()


@pytest.fixture
def model(image_run):
    return load(image_run.path, device="cpu")


def test_an_image_finds_itself(snapshot, model, photographs):
    answer = ask(snapshot, query_of(snapshot, model, files=[photographs / "b" / "05.png"]), 3)
    assert answer.matches[0].item.path == "b/05.png" and answer.matches[0].distance < 1e-3
    assert len(answer.matches) == 3 and answer.generation == 1


def test_an_item_does_not_find_itself(snapshot):
    answer = ask(snapshot, query_of(snapshot, None, ids=[4]), 11)
    assert len(answer.matches) == 11 and 4 not in {match.item.id for match in answer.matches}


def test_several_are_asked_for_by_their_mean_on_the_sphere(snapshot, model, photographs):
    one = snapshot.vector(0)
    other = snapshot.vector(1)
    mean = (one + other) / np.linalg.norm(one + other)
    query = query_of(snapshot, None, ids=[0, 1])
    assert np.allclose(query.vector, mean, atol=1e-6) and query.exclude == (0, 1)
    paths = [photographs / snapshot.item(id).path for id in (0, 1)]
    assert np.allclose(query_of(snapshot, model, files=paths).vector, mean, atol=1e-6)


def test_a_label_is_the_mean_of_its_items(snapshot):
    rows = [row for row, item in enumerate(snapshot.items()) if item.label == "c"]
    mean = snapshot.vectors()[rows].mean(axis=0)
    query = query_of(snapshot, None, labels=["c"])
    assert (
        np.allclose(query.vector, mean / np.linalg.norm(mean), atol=1e-6)
        and query.title == "label c"
    )


def test_beyond_the_threshold_nothing_matches(snapshot):
    query = query_of(snapshot, None, ids=[0])
    near = ask(snapshot, query, 5)
    between = (near.matches[1].distance + near.matches[2].distance) / 2
    some = ask(snapshot, query, 5, threshold=between)
    assert some.matches == near.matches[:2] and some.beyond == near.matches[2]
    assert ask(snapshot, query, 5, threshold=0.0).matches == ()


def test_the_answer_as_json(snapshot):
    document = json.loads(
        json.dumps(ask(snapshot, query_of(snapshot, None, ids=[0]), 2).document())
    )
    assert (
        document["generation"] == 1 and document["query"] == "item 0" and document["beyond"] is None
    )
    assert set(document["matches"][0]) == {"id", "path", "label", "metadata", "distance"}


def test_feature_runs_are_asked_with_vectors(feature_run, vectors_file, listener, tmp_path):
    index(feature_run, Request([str(vectors_file)]), listener)
    snapshot = CollectionDirectory.of(feature_run).snapshot()
    model = load(feature_run.path, device="cpu")
    np.save(tmp_path / "query.npy", np.load(vectors_file)["features"][7])
    answer = ask(snapshot, query_of(snapshot, model, files=[tmp_path / "query.npy"]), 1)
    assert answer.matches[0].item.id == 7
    with pytest.raises(ConfigError, match=r"an \.npy or \.npz"):
        query_of(snapshot, model, files=[tmp_path / "query.png"])
    width = np.load(vectors_file)["features"].shape[1]
    np.save(tmp_path / "words.npy", np.array(["1.5"] * width))
    np.save(tmp_path / "complex.npy", np.full(width, 1j))
    for name in ("nothing", "words", "complex"):
        with pytest.raises(DataError, match=rf"{name}\.npy is not readable"):
            query_of(snapshot, model, files=[tmp_path / f"{name}.npy"])


def test_errors(snapshot, model, tmp_path):
    with pytest.raises(ConfigError, match="something to look for"):
        query_of(snapshot, model)
    with pytest.raises(DataError, match="is missing"):
        query_of(snapshot, model, files=[tmp_path / "nothing.png"])
    with pytest.raises(DataError, match="unknown label 'e'"):
        query_of(snapshot, model, labels=["e"])
    with pytest.raises(DataError, match="item 99"):
        query_of(snapshot, model, ids=[99])


@pytest.mark.parametrize("words", [["label"], ["=x"], ["a=1", "a=2"]])
def test_conditions_that_are_none_are_rejected(words):
    with pytest.raises(ConfigError, match="--where"):
        conditions(words)


def test_a_value_may_hold_an_equals_sign():
    assert conditions(["a=b=c"]) == {"a": "b=c"}
