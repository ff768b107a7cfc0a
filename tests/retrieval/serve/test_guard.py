"""Whom the server answers, and what every answer carries."""

import re
from dataclasses import replace
from importlib import resources

import pytest

from vicinal.errors import ConfigError
from vicinal.retrieval.serve import guard
from vicinal.retrieval.serve.guard import HEADERS
from vicinal.retrieval.serve.server import SHIPPED


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"]
)
def test_the_machine_itself_is_answered(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8000", "", "127.0.0.1.evil", "localhost@evil"])
def test_another_name_is_rejected_also_for_the_page_itself(client, host):
    for path in ("/", "/api/about", "/api/items/0/image", "/nowhere"):
        assert client.get(path, headers={"host": host}).status_code == 400


def test_a_further_name_can_be_allowed(library, client_of):
    with client_of(library, hosts=("localhost", "birds.lan")) as client:
        assert client.get("/api/about", headers={"host": "birds.lan:80"}).status_code == 200
        assert client.get("/api/about", headers={"host": "127.0.0.1"}).status_code == 400


TOKEN = "0123456789abcdef"


def test_an_empty_token_protects_nothing_and_is_rejected(library, client_of):
    with pytest.raises(ConfigError, match="token is empty"):
        client_of(library, token="")


def test_a_token_is_asked_for_but_by_monitors(library, client_of):
    with client_of(library, token=TOKEN) as client:
        assert client.get("/health").json() == {"generation": 1}
        for given in ("", "Bearer 0123456789abcdeF", "Basic =="):
            answer = client.get("/", headers={"authorization": given})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
        known = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/api/about", headers=known).status_code == 200
        assert client.get("/", auth=("anybody", TOKEN)).status_code == 200
        counted = client.get("/metrics", headers=known).text.splitlines()
        assert 'vicinal_answers_total{status="401"} 3' in counted and "vicinal_items 36" in counted
        assert 'vicinal_answers_total{status="200"} 3' in counted
        assert {line.split()[0] for line in counted if line[0] != "#"} == {
            *(f'vicinal_answers_total{{status="{status}"}}' for status in (200, 401)),
            *("vicinal_answer_seconds_total", "vicinal_items", "vicinal_generation"),
        }


def test_a_proxy_on_this_machine_may_name_who_asks(library, client_of):
    for settings in ({}, {"token": TOKEN}):
        with client_of(library, user_header="X-Remote-User", **settings) as client:
            for header in ({}, {"x-remote-user": ""}):
                assert client.get("/api/about", headers=header).status_code == 401
            named = {"x-remote-user": "ada"}
            assert client.get("/api/about", headers=named).status_code == 401  # from afar
            client._transport.client = ("127.0.0.1", 50000)
            assert client.get("/api/about", headers=named).status_code == 200
            assert client.get("/api/about").status_code == 401
            assert client.get("/health").status_code == 200
            known = client.get("/api/about", headers={"authorization": f"Bearer {TOKEN}"})
            assert known.status_code == (200 if settings else 401)


def test_an_upload_is_counted_while_it_arrives(client, monkeypatch):
    monkeypatch.setattr(guard, "UPLOAD_BYTES", 1000)
    assert client.post("/api/search/image", content=b"x" * 1000).status_code == 415
    answer = client.post("/api/search/image", content=iter([b"x" * 300] * 4))
    assert answer.status_code == 413 and "1,000 bytes" in answer.json()["detail"]


@pytest.mark.parametrize(
    "address", [*SHIPPED, "/openapi.json", "/api/about", "/api/items/0/thumbnail", "/nowhere"]
)
def test_every_answer_carries_the_headers_that_bind_a_browser(client, address):
    answer = client.get(address)
    for name, value in HEADERS.items():
        if name != "Cache-Control":
            assert answer.headers[name] == value
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_policy_allows_no_inline_script_and_no_other_machine():
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    assert "unsafe-eval" not in policy and "http" not in policy
    assert re.findall(r"(\S+) 'unsafe-inline'", policy) == ["style-src-attr"]


@pytest.mark.parametrize("address", SHIPPED)
def test_the_page_names_no_other_machine_and_holds_no_inline_script(address):
    package, name = SHIPPED[address]
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"/static/[\w.]+", text)) <= set(SHIPPED)
    if name.endswith(".html"):
        assert not re.findall(r"<script(?![^>]*\bsrc=)", text)
        assert not re.findall(r"\son\w+=|style=", text)
    if package == "vicinal.retrieval.serve":
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text
        )


def test_a_request_that_fails_says_so_without_a_traceback(library, caplog, client_of):
    def fails(*_):
        raise RuntimeError("the secret of the house")

    broken = replace(library, collection=type("Broken", (), {"snapshot": fails})())
    with client_of(broken) as client:
        answer = client.get("/api/about")
    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "the secret of the house" in caplog.text


@pytest.mark.parametrize("folder", ["/home/ann/my runs/birds/", "C:\\home\\my runs\\birds\\"])
def test_an_error_names_no_folder_of_this_machine(folder, library, client_of, monkeypatch):
    def broken(*_):
        raise OSError(30, "Read-only file system", f"{folder}map.npz")

    monkeypatch.setattr(type(library.collection), "snapshot", broken)
    with client_of(library) as client:
        answer = client.get("/api/about")
    assert answer.status_code == 500 and "map.npz" in answer.json()["detail"]
    assert "home" not in answer.text and "birds" not in answer.text
