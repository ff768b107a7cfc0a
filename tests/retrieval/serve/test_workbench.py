"""Changes through the server: from its own page alone, kept, undone and exported; findings, also
damaged ones."""

import errno
import os
import shutil

import pytest

from vicinal.retrieval.annotations import NAME
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.decisions import apply_decisions
from vicinal.retrieval.serve.guard import Limits

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


def findings(run, text):
    (run.path / "clean").mkdir(exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    (run.path / "clean" / "findings.csv").write_bytes(data)


def test_changes_are_kept_undone_and_exported(client, run):
    assert client.get("/api/annotations").json()["items"] == []
    answer = client.post(
        "/api/annotations", json={"targets": [0, 13], "add": ["blurred", "night"]}
    ).json()
    assert answer["can_undo"] and [item["target"] for item in answer["items"]] == [0, 13]
    client.post("/api/annotations", json={"targets": [13], "label": 'a "wren", one'})
    client.post("/api/annotations", json={"targets": [5, "else/where.png"], "drop": True})
    table = client.get("/api/annotations.csv")
    assert table.headers["content-disposition"] == 'attachment; filename="annotations.csv"'
    assert table.text.splitlines() == [
        "path,label,tags",
        "class_0/00.jpg,disc,blurred;night",
        'class_1/01.jpg,"a ""wren"", one",blurred;night',
        "class_0/05.jpg,disc,dropped",
        "else/where.png,,dropped",
    ]
    decided = client.get("/api/decisions.csv").text.splitlines()
    assert decided == [
        "path,label",
        'class_1/01.jpg,"a ""wren"", one"',
        "class_0/05.jpg,",
        "else/where.png,",
    ]
    client.post("/api/annotations/undo", json={})
    client.post("/api/annotations/undo", json={})
    assert client.get("/api/decisions.csv").text == "path,label\n"
    assert (run.path / "collection" / NAME).read_bytes().count(b"\n") == 5


def test_new_classes_are_listed_and_searched_until_they_are_undone(client, run):
    def classes():
        return {
            each["label"]: each["items"] for each in client.get("/api/classes").json()["classes"]
        }

    before = classes()
    client.post("/api/annotations", json={"targets": [3, 13], "label": "ring"})
    assert (
        classes() == {"disc": 11, "ring": 2, "square": 1}
        and client.get("/api/about").json()["classes"] == 3
    )
    assert [item["id"] for item in client.get("/api/items?label=ring").json()["items"]] == [3, 13]
    assert [
        match["id"] for match in client.get("/api/search/item/0?label=ring").json()["matches"]
    ] != []
    assert client.get("/api/search/class?name=ring").status_code == 200
    assert client.get("/api/items/13").json()["item"]["label"] == "ring"
    client.post("/api/annotations/undo", json={})
    assert classes() == before and client.get("/api/items?label=ring").json()["total"] == 0
    (run.path / "collection" / NAME).unlink()
    (run.path / "collection" / NAME).symlink_to(run.path)  # which the server does not follow
    assert client.get("/api/annotations").status_code == 422 and classes() == before


def test_decisions_of_the_page_are_applied_by_clean(client, run, tmp_path):
    collection = CollectionDirectory.open(run.path / "collection").snapshot()
    # a class that is there, one that is not, and one that a spreadsheet would take for a formula
    for label in ("disc", "ring", "=1+1"):
        client.post("/api/annotations", json={"targets": [13], "label": label})
        client.post("/api/annotations", json={"targets": [5], "drop": True})
        (tmp_path / "decisions.csv").write_bytes(client.get("/api/decisions.csv").content)
        made = apply_decisions(collection, tmp_path / "decisions.csv", new_labels=label != "disc")
        exported = client.get("/api/annotations.csv").text
        assert (",'=1+1," in exported) == (label == "=1+1") and ",=" not in exported
        assert (made.changed, made.dropped) == (1, 1) and "class_0/05.jpg" not in made.table
        assert f"class_1/01.jpg,{label}," in made.table and "class_0/04.jpg,disc," in made.table


def test_what_was_decided_outlives_a_new_generation(client, run, index, write_pictures, tmp_path):
    before = client.post("/api/annotations", json={"targets": [3], "add": ["night"]}).json()
    index(run.path, tmp_path / "pictures", write_pictures(tmp_path / "pictures")[:14])
    answer = client.get("/api/annotations").json()
    assert answer["generation"] == before["generation"] + 1 and answer["items"][0]["tags"] == [
        "night"
    ]
    index(run.path, tmp_path / "pictures", write_pictures(tmp_path / "pictures")[:3])
    answer = client.get("/api/annotations").json()
    assert answer["items"] == [] and answer["lost"] == ["class_0/03.jpg"]
    assert "class_0/03.jpg,,night;lost" in client.get("/api/annotations.csv").text
    index(run.path, tmp_path / "pictures", write_pictures(tmp_path / "pictures")[:14])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
)
def test_another_page_changes_nothing(client, run, headers):
    body = b'{"targets": [1], "drop": true}'
    for path in ("/api/annotations", "/api/annotations/undo"):
        answer = client.post(
            path, content=body, headers={"content-type": "application/json", **headers}
        )
        assert answer.status_code == (415 if "content-type" in headers else 403)
        assert set(answer.json()) == {"asked", "got", "advice"}
    assert not (run.path / "collection" / NAME).exists()


def test_the_own_page_and_programs_may_change(client):
    for headers in ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, {}):
        assert (
            client.post(
                "/api/annotations", json={"targets": [1], "drop": True}, headers=headers
            ).status_code
            == 200
        )


def test_a_server_that_others_reach_takes_no_changes(run, library_of, client_of):
    with client_of(library_of(run)) as client:
        answer = client.post("/api/annotations", json={"targets": [1], "drop": True})
        assert answer.status_code == 403 and "--host" in answer.json()["advice"]
        assert client.get("/api/annotations").json()["writable"] is False
    assert not (run.path / "collection" / NAME).exists()


def test_sizes_are_limited(run, library_of, client_of):
    with client_of(library_of(run), writable=True, limits=Limits(json_bytes=500)) as client:
        assert (
            client.post(
                "/api/annotations", json={"targets": list(range(400)), "drop": True}
            ).status_code
            == 413
        )
    assert not (run.path / "collection" / NAME).exists()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"targets": []},
        {"targets": [1]},
        {"targets": [-1], "drop": True},
        {"targets": [1], "add": ["a;b"]},
    ],
)
def test_a_change_that_cannot_be_is_told(client, body):
    answer = client.post("/api/annotations", json=body)
    assert answer.status_code == 422 and set(answer.json()) == {"asked", "got", "advice"}


def test_a_link_in_place_of_the_journal_is_told_and_not_followed(client, run, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_text("")
    (run.path / "collection" / NAME).symlink_to(foreign)
    answer = client.post("/api/annotations", json={"targets": [1], "drop": True})
    assert (
        answer.status_code == 422 and "link" in answer.json()["got"] and foreign.read_text() == ""
    )


def test_findings_are_read_a_page_at_a_time_with_their_neighbors(client, run):
    rows = "0,class_0/00.jpg,disc,label,0.9,square,class_1/00.jpg|gone.png\n1,gone.png,disc,outlier,0.5,,\n"
    findings(run, HEADER + rows)
    answer = client.get("/api/review").json()
    first, second = answer["findings"]
    assert answer["total"] == 2 and answer["kinds"] == {"label": 1, "outlier": 1}
    assert first["suggested"] == "square" and first["neighbors"] == ["class_1/00.jpg", "gone.png"]
    assert {path: item["id"] for path, item in answer["items"].items()} == {
        "class_0/00.jpg": 0,
        "class_1/00.jpg": 12,
    }
    assert second["path"] == "gone.png" and second["neighbors"] == []
    assert client.get("/api/review?offset=1").json()["findings"] == [second]
    assert client.get("/api/review?kind=label").json()["total"] == 1
    findings(run, HEADER + rows.splitlines()[0] + "\n")  # written anew meanwhile
    assert client.get("/api/review").json()["total"] == 1


def test_no_findings_say_how_to_get_some(client):
    answer = client.get("/api/review")
    assert answer.status_code == 404 and "vicinal clean" in answer.json()["advice"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1"),
        ("path,label\na,b\n", "no column kind"),
        (HEADER + "0,a.png,disc,label,high,square,\n", "line 2, score"),
        (HEADER + "0,a.png,disc,label,nan,square,\n", "line 2"),
        (HEADER + "0,a.png,disc\n", "line 2"),
        (HEADER + "0,a.png,disc,label,1,square,b.png,more\n", "line 2"),
        (HEADER + '0,"a.png,disc,label,1,square,', "table"),
        (b"\xff\xfe\x00" + HEADER.encode(), "table"),
    ],
)
def test_damaged_findings_are_an_error_to_read_not_a_failure(client, run, text, told):
    findings(run, text)
    answer = client.get("/api/review")
    assert (
        answer.status_code == 422
        and told in answer.json()["got"]
        and str(run.path) not in answer.text
    )
    assert "clean/findings.csv" in answer.json()["got"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_takes_nothing_is_told_without_a_folder(
    client, run, monkeypatch, caplog, number
):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    answer = client.post("/api/annotations", json={"targets": [0], "add": ["blurred"]})
    assert answer.status_code == 500 and os.strerror(number) in answer.json()["got"]
    assert str(run.path) not in answer.text and not caplog.records


def test_a_collection_that_is_gone_is_told_and_answers_when_it_is_back(client, run, caplog):
    folder = run.path / "collection"
    change = {"targets": [0], "add": ["blurred"]}
    assert client.get("/api/about").status_code == 200
    folder.rename(run.path / "elsewhere")
    for path in ("about", "map", "annotations.csv", "items", "search/item/0", "items/0/thumbnail"):
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 500 and "current.json" in answer.json()["got"]
        assert "/" not in answer.json()["got"]
    assert client.post("/api/annotations", json=change).status_code == 500
    assert not caplog.records and not folder.exists()
    (run.path / "elsewhere").rename(folder)
    assert client.post("/api/annotations", json=change).status_code == 200
    assert client.get("/api/about").status_code == 200


@pytest.mark.parametrize("label", ["\u00b2", "--5", str(10**20), "-", "007", "nan", "="])
def test_a_new_label_is_text_whatever_it_looks_like(client, label):
    answer = client.post("/api/annotations", json={"targets": [0], "label": label})
    assert answer.status_code == 200
    assert label in [each["label"] for each in client.get("/api/classes").json()["classes"]]
    assert client.get("/api/search/class", params={"name": label}).json()["matches"]
    assert client.get("/api/decisions.csv").status_code == 200
