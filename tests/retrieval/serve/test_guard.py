"""Whom the server answers, and how much it lets in."""

import asyncio

import pytest

from vicinal.retrieval.serve.guard import Guard, Limits, name_of


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"])
def test_the_machine_itself_is_answered(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "", "localhost.evil.example", "127.0.0.1.evil", "localhost@evil", "::1"],
)
def test_another_name_is_refused_also_for_the_page_itself(client, host):
    for path in ("/", "/api/about", "/api/items/0/image", "/nowhere"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "--allow-host" in answer.json()["advice"]


def test_a_further_name_can_be_allowed(library, client_of):
    with client_of(library, hosts=("localhost", "birds.lan")) as client:
        assert client.get("/api/about", headers={"host": "birds.lan:80"}).status_code == 200
        assert client.get("/api/about", headers={"host": "127.0.0.1"}).status_code == 421


def test_another_sites_page_gets_nothing_but_its_links_lead_here(client):
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "origin": "https://evil.example"}
    assert client.get("/api/items/0/image", headers=foreign).status_code == 403
    assert client.get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.options("/api/search/vector", headers=asked)
    assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers


def test_a_body_is_refused_by_its_announced_length_and_by_counting(library, client_of):
    with client_of(library, limits=Limits(upload_bytes=1000, json_bytes=500)) as client:
        assert client.post("/api/search/image", content=b"x" * 1001).status_code == 413
        answer = client.post("/api/search/image", content=(b"x" * 300 for _ in range(4)))
        assert answer.status_code == 413 and "1,000 bytes" in answer.json()["asked"]
        assert client.post("/api/search/vector", content=b"[" * 501).status_code == 413
        assert client.post("/api/search/vector", content=(b"[" * 300 for _ in range(2))).status_code == 413
        assert client.post("/api/search/image", content=b"x" * 1000).status_code == 415


def test_reading_stops_at_the_limit():
    """What lies beyond is never asked for, so that a sender without end fills nothing."""
    pulled = []

    async def receive():
        pulled.append(1)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def application(scope, receive, send):
        while True:
            await receive()

    async def send(_):
        pass

    guard = Guard(application, hosts=["localhost"], limits=Limits(json_bytes=1000))
    scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(guard(scope, receive, send))
    assert len(pulled) == 11


def test_names_are_told_from_ports():
    assert name_of("a:b:80") == "a:b" and name_of(":80") == ":80" and name_of("a:x") == "a:x"
