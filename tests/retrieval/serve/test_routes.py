"""The five searches against a search written out by hand, and everything that they reject."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vicinal.retrieval.calibration import Threshold

HOSTILE = "<img src=x onerror='window.injected = true'>"
PER_CLASS = 12  # as in conftest


def by_hand(library, vector, k, keep=lambda item: True):
    """Distances one at a time."""
    snapshot = library.collection.snapshot()
    rows = [
        (float(np.linalg.norm(snapshot.vector(item.id) - vector)), item.id)
        for item in snapshot.items
        if keep(item)
    ]
    return [id for _, id in sorted(rows)[:k]]


def ids(answer):
    assert answer.status_code == 200, answer.text
    return [match["id"] for match in answer.json()["matches"]]


def test_an_item_finds_its_neighbors_and_not_itself(client, library):
    vector = library.collection.snapshot().vector(5)
    answer = client.get("/api/search/item/5?k=7")
    assert ids(answer) == by_hand(library, vector, 7, lambda item: item.id != 5)
    body = answer.json()
    assert body["generation"] == 1 and body["by"] == "item" and body["query"]["id"] == 5
    distances = [match["distance"] for match in body["matches"]]
    assert distances == sorted(distances) and distances[0] > 0
    assert body["threshold"] is body["no_match"] is body["matches"][0]["matches"] is None


def test_a_vector_finds_what_its_item_finds_and_the_item_first(client, library):
    vector = library.collection.snapshot().vector(5)
    found = ids(client.post("/api/search/vector?k=8", json={"vector": vector.tolist()}))
    assert found == by_hand(library, vector, 8) and found[0] == 5


def test_an_indexed_picture_finds_its_own_item_at_no_distance(client, library):
    file = Path(library.collection.snapshot().places[0].root) / "class_1/04.jpg"
    answer = client.post("/api/search/image?k=3", content=file.read_bytes())
    body = answer.json()
    assert body["matches"][0]["path"] == "class_1/04.jpg" and body["matches"][0]["distance"] < 1e-4
    assert body["by"] == "image" and body["query"] is None and body["embedding_seconds"] > 0


def test_a_class_is_sought_by_its_mean(client, library):
    mean = library.collection.snapshot().vectors[PER_CLASS : 2 * PER_CLASS].mean(axis=0)
    found = ids(client.get("/api/search/class", params={"name": "square", "k": 5}))
    assert found == by_hand(library, mean / np.linalg.norm(mean), 5)
    assert client.get("/api/search/class?name=triangle").status_code == 422


def test_searches_are_narrowed_by_class_and_metadata(client, library):
    vector = library.collection.snapshot().vector(5)
    answer = client.get(
        "/api/search/item/5", params={"k": 50, "label": HOSTILE, "where": "camera=1"}
    )
    wanted = by_hand(
        library, vector, 50, lambda item: item.label == HOSTILE and item.metadata["camera"] == "1"
    )
    assert ids(answer) == wanted and len(wanted) == PER_CLASS / 2
    assert ids(client.get("/api/search/item/5", params={"label": "nothing of that name"})) == []


def test_the_threshold_parts_matches_from_the_rest(library, client_of):
    known = Threshold(0.05, 0.001, "As calibrated.")
    with client_of(replace(library, threshold=known)) as client:
        body = client.get("/api/search/item/5?k=30").json()
        assert body["threshold"] == {"distance": 0.05, "false_match_rate": 0.001}
        pairs = {(match["matches"], match["distance"] <= 0.05) for match in body["matches"]}
        assert pairs == {(True, True), (False, False)} and body["no_match"] is False
        asked = client.get("/api/search/item/5?k=30&max_distance=0").json()
        assert asked["threshold"] == {"distance": 0.0, "false_match_rate": None}
        assert asked["no_match"] is True


@pytest.mark.parametrize(
    "query",
    [
        "k=0",
        "k=201",
        "max_distance=nan",
        "max_distance=-1",
        "max_distance=1e99",
        "where=camera",
        "where=nobody=2",
        "where=label=disc&label=disc",
    ],
)
def test_values_that_cannot_be_are_422(client, query):
    answer = client.get(f"/api/search/item/5?{query}")
    assert answer.status_code == 422 and isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize("id", ["-1", "x", "99999999999999999999"])
def test_ids_that_cannot_be_are_422(client, id):
    assert client.get(f"/api/search/item/{id}").status_code == 422


def test_an_id_that_nobody_has_is_404(client):
    answer = client.get("/api/search/item/777")
    assert answer.status_code == 404 and "generation 1" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"vector": []}',
        '{"vector": [1, 2]}',
        '{"vector": [NaN]}',
        '{"vector": [1e39]}',
        "[" * 50_000,
        '{"vector": [' + "9" * 5000 + "]}",
        "\xff",
    ],
)
def test_malformed_vectors_get_a_clear_4xx(client, body):
    headers = {"content-type": "application/json"}
    answer = client.post("/api/search/vector", content=body.encode("latin-1"), headers=headers)
    assert answer.status_code in (400, 422)
    assert isinstance(answer.json()["detail"], str) and len(answer.text) < 1000


def test_k_may_be_larger_than_the_collection(client):
    assert len(ids(client.get("/api/search/item/5?k=200"))) == 3 * PER_CLASS - 1


def test_a_run_on_features_takes_no_picture(featured, png):
    answer = featured.post("/api/search/image", content=png)
    assert answer.status_code == 415 and "features" in answer.json()["detail"]
    assert featured.get("/api/about").json()["kind"] == "features"
    assert len(ids(featured.get("/api/search/item/0?k=3"))) == 3
    assert featured.get("/api/items/0/thumbnail").status_code == 404


def test_a_text_finds_what_its_embedding_is_nearest_to(library, client_of, reader):
    with client_of(replace(library, reader=reader)) as client:
        answer = client.get("/api/search/text", params={"q": "a blue disc", "k": 3})
        assert ids(answer) == by_hand(library, reader.embed("a blue disc")[0], 3)
        assert answer.json()["by"] == "text" and answer.json()["query"] is None
        assert client.get("/api/search/text?q=%20").status_code == 422
        assert client.get("/api/search/text").status_code == 422
        assert client.get("/api/about").json()["text"] is True


def test_a_run_without_a_text_encoder_says_so(client):
    answer = client.get("/api/search/text?q=disc")
    assert answer.status_code == 415 and "no text encoder" in answer.json()["detail"]
    assert client.get("/api/about").json()["text"] is False
