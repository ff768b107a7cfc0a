"""Listings, items and their pictures; no file outside the indexed folder is ever sent."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from vicinal.retrieval.collection import publish
from vicinal.retrieval.items import Item, Place

PER_CLASS = 12  # as in conftest


def test_classes_are_counted(client):
    counts = {
        entry["label"]: entry["items"] for entry in client.get("/api/classes").json()["classes"]
    }
    assert list(counts.values()) == [PER_CLASS] * 3 and list(counts) == sorted(counts)


def test_items_come_in_pages_and_evenly_spread(client):
    def page(query):
        answer = client.get(f"/api/items?{query}").json()
        return answer["total"], [item["id"] for item in answer["items"]]

    assert page("limit=5") == (36, [0, 1, 2, 3, 4])
    assert page("limit=5&offset=34") == (36, [34, 35])
    assert page("limit=3&spread=true") == (36, [0, 12, 24])
    assert page("label=square&limit=200") == (PER_CLASS, [*range(12, 24)])
    assert page("offset=999") == (36, [])


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "offset=-1", "offset=9999999999999"])
def test_pages_that_cannot_be_are_422(client, query):
    assert client.get(f"/api/items?{query}").status_code == 422


def test_an_item_tells_what_is_known_of_it(client):
    item = client.get("/api/items/13").json()["item"]
    assert item == {
        "id": 13,
        "path": "class_1/01.jpg",
        "label": "square",
        "metadata": {"camera": "1"},
    }


def test_pictures_are_encoded_anew_and_kept_only_under_their_generation(client):
    for path, side in (("thumbnail", 96), ("image", 96), ("thumbnail?side=64", 64)):
        answer = client.get(f"/api/items/13/{path}")
        assert answer.headers["content-type"] in ("image/jpeg", "image/png")
        assert b"secret" not in answer.content
        assert max(Image.open(BytesIO(answer.content)).size) == side
        assert answer.headers["Cache-Control"] == "no-store"
    kept = client.get("/api/items/13/thumbnail?generation=1").headers["Cache-Control"]
    assert "immutable" in kept
    assert client.get("/api/items/13/thumbnail?generation=2").headers["Cache-Control"] == "no-store"
    assert client.get("/api/items/13/thumbnail?side=77").status_code == 422
    assert client.get("/api/items/777/thumbnail").status_code == 404


def test_no_file_outside_the_folder_is_sent_whatever_the_collection_says(
    tmp_path, client_of, library_of, write_run
):
    run = write_run(tmp_path / "run")
    root = tmp_path / "pictures"
    root.mkdir()
    for name in ("secret.png", "pictures/known.png"):
        Image.new("RGB", (9, 9), "red").save(tmp_path / name)
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "bad.jpg").write_bytes(b"\xff\xd8 no picture")
    names = ["known.png", "../secret.png", "link.png", "gone.jpg", "bad.jpg"]
    items = [Item(row, name, "disc") for row, name in enumerate(names)]
    places = [Place(str(root), str(root))]
    publish(run.path / "collection", items, np.eye(5, 16), dim=16, places=places)
    with client_of(library_of(run)) as client:
        answers = [client.get(f"/api/items/{id}/image") for id in range(5)]
        assert [answer.status_code for answer in answers] == [200, 404, 404, 404, 404]
        assert not any(str(tmp_path) in answer.text for answer in answers[1:])


CLIMBING = ("/static/../page.html", "/static/%2e%2e/%2e%2e/pyproject.toml", "/static//etc/passwd")


@pytest.mark.parametrize(
    "path", [*CLIMBING, "/..%2f..%2fetc%2fpasswd", "/static/server.py", "/api/items/..%2f0/image"]
)
def test_paths_that_climb_lead_nowhere(client, path):
    assert client.get(path).status_code in (404, 422)


def test_indexing_while_serving_is_seen_by_the_next_request(
    tmp_path, client_of, index, library_of, write_pictures, write_run
):
    run = write_run(tmp_path / "run")
    root = tmp_path / "pictures"
    written = write_pictures(root)
    index(run.path, root, written)
    with client_of(library_of(run)) as client:
        assert client.get("/api/items").json()["total"] == 36
        index(run.path, root, written[:20])
        for path in ("about", "classes", "items", "items/3", "search/item/3", "map"):
            assert client.get(f"/api/{path}").json()["generation"] == 2
        assert client.get("/api/items").json()["total"] == 20
        assert client.get("/api/items/30").status_code == 404
