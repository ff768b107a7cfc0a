"""Whom the server answers, and how much it lets in."""

import asyncio
import socket
import time
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
import uvicorn
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from vicinal.retrieval.serve import server
from vicinal.retrieval.serve.guard import Guard, Limits


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"]
)
def test_the_machine_itself_is_answered(client, host):
    assert client.get("/api/about", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "",
        "localhost.evil.example",
        "127.0.0.1.evil",
        "localhost@evil",
        "::1",
    ],
)
def test_another_name_is_rejected_also_for_the_page_itself(client, host):
    for path in ("/", "/api/about", "/api/items/0/image", "/nowhere"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "--allow-host" in answer.json()["advice"]


def test_a_further_name_can_be_allowed(library, client_of):
    with client_of(library, hosts=("localhost", "birds.lan")) as client:
        assert client.get("/api/about", headers={"host": "birds.lan:80"}).status_code == 200
        assert client.get("/api/about", headers={"host": "127.0.0.1"}).status_code == 421


def test_another_sites_page_gets_nothing_but_its_links_lead_here(client):
    foreign = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "no-cors",
        "origin": "https://evil.example",
    }
    assert client.get("/api/items/0/image", headers=foreign).status_code == 403
    assert client.get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = client.options("/api/search/vector", headers=asked)
    assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers


def test_a_body_is_counted_while_it_arrives(library, client_of):
    with client_of(library, limits=Limits(upload_bytes=1000, json_bytes=500)) as client:
        assert client.post("/api/search/image", content=b"x" * 1001).status_code == 413
        answer = client.post("/api/search/image", content=(b"x" * 300 for _ in range(4)))
        assert answer.status_code == 413 and "1,000 bytes" in answer.json()["asked"]
        assert client.post("/api/search/vector", content=b"[" * 501).status_code == 413
        assert (
            client.post("/api/search/vector", content=(b"[" * 300 for _ in range(2))).status_code
            == 413
        )
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


def guarded(messages, *, application=None, **limits):
    """Send what ``messages`` give through a guard of its own; the statuses that were answered, and
    the guard."""
    answered = []

    async def read(scope, receive, send):
        await StarletteRequest(scope, receive).body()
        await Response("done")(scope, receive, send)

    async def send(message):
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    guard = Guard(application or read, hosts=["localhost"], limits=Limits(**limits))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}

    async def scene():
        await asyncio.gather(*(guard(scope, receive, send) for receive in messages))

    asyncio.run(scene())
    return answered, guard


def sending(*parts, end=None):
    """A client that sends these parts, then ``end``, or nothing at all any more."""
    rest = [{"type": "http.request", "body": part, "more_body": True} for part in parts] + (
        [end] if end else []
    )

    async def receive():
        if not rest:
            await asyncio.sleep(3600)
        return rest.pop(0)

    return receive


def test_a_client_that_leaves_is_no_failure(caplog):
    answered, _ = guarded([sending(b"half of it", end={"type": "http.disconnect"})])
    assert not answered and not caplog.records


def test_a_body_that_never_ends_is_given_up():
    answered, _ = guarded([sending(b"half of it")], body_seconds=0.05)
    assert answered == [408]


@contextmanager
def running(application):
    """A server on a port of its own whose connections may be idle for 0.3 s; its address."""
    config = uvicorn.Config(
        application, http=server.Protocol, timeout_keep_alive=0.3, log_level="error"
    )
    answering = uvicorn.Server(config)
    with server.bind("127.0.0.1", 0) as bound:
        thread = Thread(target=answering.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield bound.getsockname()
        finally:
            answering.should_exit = True
            thread.join()


def everything(connection):
    """All that comes until the server ends the connection, to whom a byte is sent again and
    again."""
    got = b""
    connection.settimeout(0.05)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            part = connection.recv(4096)
            if not part:
                return got
            got += part
        except TimeoutError:
            with suppress(OSError):
                connection.sendall(b"1")
        except ConnectionError:
            return got
    raise AssertionError("the connection is still open")


HALVES = {
    "nothing": b"",
    "headers": b"GET /api/about HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
    "second": b"GET /icon HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/ab",
    "stranger": b"POST /api/about HTTP/1.1\r\nHost: evil\r\nContent-Length: 9999\r\n\r\nx",
    "get": b"GET /api/about HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\nx",
    "chunked": b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n",
}


@pytest.mark.parametrize("half", HALVES)
def test_what_is_half_sent_is_given_up(library, half):
    application = server.create_application(library, limits=Limits(body_seconds=0.3))
    with running(application) as address, socket.create_connection(address) as slow:
        slow.sendall(HALVES[half])
        got = everything(slow)
    status = {"stranger": b" 421 ", "get": b" 408 ", "chunked": b" 408 "}.get(half, b"")
    assert status in got.partition(b"\r\n")[0]
