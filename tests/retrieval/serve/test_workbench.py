"""Changes through the server: from its own page alone, kept, undone and exported; findings, also
damaged ones."""

import errno
import json
import os
import shutil

import pytest

from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.decisions import NAME, apply_decisions

HEADER = "row,path,label,kind,score,suggested,neighbors\n"


@pytest.fixture(scope="module")
def shared(write_run, write_pictures, index, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workbench")
    run = write_run(folder / "run")
    index(run.path, folder / "pictures", write_pictures(folder / "pictures")[:14])
    return run


@pytest.fixture
def run(shared):
    """A run about which nothing is decided and nothing found."""
    yield shared
    (shared.path / "collection" / NAME).unlink(missing_ok=True)
    shutil.rmtree(shared.path / "clean", ignore_errors=True)


@pytest.fixture
def client(run, library_of, client_of):
    with client_of(library_of(run), writable=True) as client:
        yield client


@pytest.fixture
def change(client):
    """``change([1], "")`` asks for a change."""
    return lambda targets, label: client.post(
        "/api/annotations", json={"targets": targets, "label": label}
    )


def findings(run, text):
    (run.path / "clean").mkdir(exist_ok=True)
    (run.path / "clean" / "findings.csv").write_bytes(text.encode())


def test_changes_are_kept_undone_and_exported(client, run, change):
    assert client.get("/api/annotations").json()["items"] == []
    answer = change([0, 13], "ring").json()
    assert answer["can_undo"]
    assert answer["items"][1] == {"target": 13, "label": "ring", "dropped": False}
    change([13], 'a "wren", one')
    change([5, "else/where.png"], "")
    decided = client.get("/api/decisions.csv").text.splitlines()
    assert decided == [
        "path,label",
        "class_0/00.jpg,ring",
        'class_1/01.jpg,"a ""wren"", one"',
        "class_0/05.jpg,",
        "else/where.png,",
    ]
    for _ in range(3):
        client.post("/api/annotations/undo", json={})
    assert client.get("/api/decisions.csv").text == "path,label\n"
    assert json.loads((run.path / "collection" / NAME).read_text()) == []


def test_new_classes_are_listed_and_searched_until_they_are_undone(client, run, change):
    def classes():
        listed = client.get("/api/classes").json()["classes"]
        return {each["label"]: each["items"] for each in listed}

    before = classes()
    change([3, 13], "ring")
    assert classes() == {"disc": 11, "ring": 2, "square": 1}
    assert client.get("/api/about").json()["classes"] == 3
    assert [item["id"] for item in client.get("/api/items?label=ring").json()["items"]] == [3, 13]
    assert client.get("/api/search/item/0?label=ring").json()["matches"]
    assert client.get("/api/search/class?name=ring").status_code == 200
    assert client.get("/api/items/13").json()["item"]["label"] == "ring"
    client.post("/api/annotations/undo", json={})
    assert classes() == before and client.get("/api/items?label=ring").json()["total"] == 0
    (run.path / "collection" / NAME).write_text("[[")
    assert client.get("/api/annotations").status_code == 422 and classes() == before


def test_decisions_of_the_page_are_applied_by_clean(client, run, change, tmp_path):
    collection = CollectionDirectory.open(run.path / "collection").snapshot()
    for label in ("disc", "ring", "=1+1"):
        change([13], label)
        change([5], "")
        exported = client.get("/api/decisions.csv").text
        assert ",=" not in exported  # which a spreadsheet would run
        (tmp_path / "decisions.csv").write_text(exported)
        made = apply_decisions(collection, tmp_path / "decisions.csv")
        assert (made.changed, made.dropped) == (1, 1) and "class_0/05.jpg" not in made.table
        assert f"class_1/01.jpg,{label}," in made.table and "class_0/04.jpg,disc," in made.table


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:9999"},
        {"content-type": "text/plain"},
    ],
)
def test_another_page_changes_nothing(client, run, headers):
    body = b'{"targets": [1], "label": ""}'
    own = {"origin": "http://localhost", "content-type": "application/json"}
    for path in ("/api/annotations", "/api/annotations/undo"):
        assert client.post(path, content=body, headers=own | headers).status_code == 403
    assert not (run.path / "collection" / NAME).exists()
    assert client.post("/api/annotations", content=body, headers=own).status_code == 200


def test_a_server_that_others_reach_takes_no_changes(run, library_of, client_of):
    with client_of(library_of(run)) as client:
        answer = client.post("/api/annotations", json={"targets": [1], "label": ""})
        assert answer.status_code == 403 and "--host" in answer.json()["detail"]
        assert client.get("/api/annotations").json()["writable"] is False
    assert not (run.path / "collection" / NAME).exists()


@pytest.mark.parametrize(
    "body",
    [{}, {"targets": [], "label": "a"}, {"targets": [-1], "label": "a"}, {"targets": [1]}],
)
def test_a_change_that_cannot_be_is_told(client, body):
    assert client.post("/api/annotations", json=body).status_code == 422


def test_findings_are_read_a_page_at_a_time_with_their_neighbors(client, run):
    rows = (
        "0,class_0/00.jpg,disc,label,0.9,square,class_1/00.jpg|gone.png\n"
        "1,gone.png,disc,outlier,0.5,,\n"
    )
    findings(run, HEADER + rows)
    answer = client.get("/api/review").json()
    first, second = answer["findings"]
    assert answer["total"] == 2 and answer["kinds"] == {"label": 1, "outlier": 1}
    assert first["suggested"] == "square" and first["neighbors"] == ["class_1/00.jpg", "gone.png"]
    ids = {path: item["id"] for path, item in answer["items"].items()}
    assert ids == {"class_0/00.jpg": 0, "class_1/00.jpg": 12}
    assert second["path"] == "gone.png" and second["neighbors"] == []
    assert client.get("/api/review?offset=1").json()["findings"] == [second]
    assert client.get("/api/review?kind=label").json()["total"] == 1


def test_no_findings_say_how_to_get_some(client):
    answer = client.get("/api/review")
    assert answer.status_code == 404 and "vicinal clean" in answer.json()["detail"]


@pytest.mark.parametrize(
    "text",
    ["", "path,label\na,b\n", HEADER + "0,a.png,disc,label,high,square,\n", HEADER + "0,a\n"],
)
def test_damaged_findings_are_told(client, run, text):
    findings(run, text)
    answer = client.get("/api/review")
    assert answer.status_code in (422, 500) and "findings.csv" in answer.json()["detail"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_is_told(change, monkeypatch, caplog, number):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    answer = change([0], "blurred")
    assert answer.status_code == 500 and os.strerror(number) in answer.json()["detail"]
    assert not caplog.records


def test_a_collection_that_is_gone_is_told_and_answers_when_it_is_back(client, run, change, caplog):
    folder = run.path / "collection"
    assert client.get("/api/about").status_code == 200
    folder.rename(run.path / "elsewhere")
    for path in ("about", "map", "decisions.csv", "items", "search/item/0", "items/0/thumbnail"):
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 500 and "current.json" in answer.json()["detail"]
    assert change([0], "blurred").status_code == 500
    assert not caplog.records and not folder.exists()
    (run.path / "elsewhere").rename(folder)
    assert change([0], "blurred").status_code == 200
    assert client.get("/api/about").status_code == 200


@pytest.mark.parametrize("label", ["\u00b2", "--5", str(10**20), "007", "nan", "="])
def test_a_new_label_is_text_whatever_it_looks_like(client, change, label):
    assert change([0], label).status_code == 200
    assert label in [each["label"] for each in client.get("/api/classes").json()["classes"]]
    assert client.get("/api/search/class", params={"name": label}).json()["matches"]
