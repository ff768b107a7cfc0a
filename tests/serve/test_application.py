"""The application as a whole: every file of the page is there and asks nobody, and every answer is guarded."""

import re
from importlib import resources

import pytest

from vicinal.serve.application import SHIPPED
from vicinal.serve.guard import HEADERS


@pytest.mark.parametrize("address", [*SHIPPED, "/openapi.json", "/api/about", "/api/items/0/thumbnail", "/nowhere"])
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
    package, name, _ = SHIPPED[address]
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    if name.endswith(".html"):
        assert not re.findall(r"<script(?![^>]*\bsrc=)", text)
        assert not re.findall(r"\son\w+=|style=", text)
    if package == "vicinal.serve":
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)


def test_every_file_that_the_page_asks_for_is_shipped():
    for package, name, _ in SHIPPED.values():
        text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
        assert set(re.findall(r"/static/[\w.]+", text)) <= set(SHIPPED)


def test_a_request_that_fails_says_so_without_a_traceback(library, caplog, client_of):
    def fails(*_):
        raise RuntimeError("the secret of the house")

    from dataclasses import replace

    with client_of(replace(library, collection=type("Broken", (), {"snapshot": fails})())) as client:
        answer = client.get("/api/about")
    assert answer.status_code == 500
    assert set(answer.json()) == {"asked", "came", "advice"} and "secret" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "the secret of the house" in caplog.text


def test_documentation_needs_no_network(client):
    assert "/static/docs.js" in client.get("/docs").text
    assert client.get("/redoc").status_code == 404
    described = client.get("/openapi.json").json()["paths"]
    assert {"/api/search/image", "/api/search/item/{id}", "/api/search/vector", "/api/search/class"} <= set(described)
