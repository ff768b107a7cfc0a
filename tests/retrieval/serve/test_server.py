"""Opening a library, binding a port, and a real server in a process of its own."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
import uvicorn

from vicinal.cli.search import serve as command
from vicinal.errors import ConfigError
from vicinal.evaluation.verification import pairs_by_distance
from vicinal.retrieval.calibration import Calibration
from vicinal.retrieval.library import open_library
from vicinal.retrieval.serve.server import Server, bind, create_application
from vicinal.retrieval.serve.server import serve as run
from vicinal.run_directory import model_fingerprint


def test_a_run_that_was_calibrated_shows_its_threshold(served):
    pictures = str(served.path.parent / "pictures")
    library = open_library(served.path, device="cpu", images=[pictures])
    snapshot = library.collection.snapshot()
    assert library.threshold is None and snapshot.image(7).size == (96, 96)
    labels = torch.from_numpy(snapshot.labeled()[2])
    pairs = pairs_by_distance(torch.from_numpy(np.array(snapshot.vectors)), labels)
    counts = Calibration(*pairs, 3, "classes")
    kept = {name: np.array(value) for name, value in vars(counts).items()}
    served.write_arrays("calibration", **kept, model=np.array(model_fingerprint(served)))
    try:
        usual, asked = (
            open_library(served.path, device="cpu", rate=rate).threshold for rate in (None, 0.1)
        )
        assert usual == counts.threshold(0.001)
        assert asked == counts.threshold(0.1) and asked.distance > usual.distance
    finally:
        (served.artifacts_path / "calibration.npz").unlink()


def test_without_the_extra_the_command_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'vicinal\[serve\]'"):
        command(tmp_path)


def test_an_address_that_is_taken_or_another_machines_is_rejected_with_advice():
    with bind("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="--port 0"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="--host"):
        bind("192.0.2.1", 0)


@pytest.mark.slow
def test_the_command_serves_by_tls_to_whoever_has_the_token_until_ctrl_c(served, tmp_path):
    pem = tmp_path / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    made = ["openssl", *words.split(), "subjectAltName=DNS:localhost", "-keyout", pem, "-out"]
    subprocess.run([*made, tmp_path / "certificate.pem"], check=True, capture_output=True)
    with pem.open("a") as file:
        file.write((tmp_path / "certificate.pem").read_text())
    words = ["--port=0", "--device=cpu", "--read-only", f"--ssl-certfile={pem}"]
    words += ["--user-header=X-Remote-User"]
    with subprocess.Popen(
        [sys.executable, "-m", "vicinal", "serve", *words, served.path],
        env={**os.environ, "VICINAL_TOKEN": "0123456789abcdef"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "36 items of generation 1, 16 dimensions\n"
            address = process.stdout.readline().split()[2].replace("127.0.0.1", "localhost")
            trusted = ssl.create_default_context(cafile=pem)

            def ask(headers, path="", data=None):
                asked = urllib.request.Request(address + path, data, headers)
                return urllib.request.urlopen(asked, timeout=10, context=trusted)

            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask({})
            assert ask({"X-Remote-User": "ada", "X-Forwarded-For": "203.0.113.9"}).status == 200
            known = {"Authorization": "Bearer 0123456789abcdef", "Content-Type": "application/json"}
            with ask(known, "metrics") as answer:
                assert b"vicinal_items 36" in answer.read() and "server" not in answer.headers
            with pytest.raises(urllib.error.HTTPError, match="403"):
                ask(known, "api/annotations", b'{"targets": [0], "label": "x"}')
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) in (0, 130)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"token": "short"}, "at least 16 characters, got 5"),
        ({"ssl_certfile": "nothing.pem"}, "TLS needs a certificate"),
        ({"ssl_keyfile": "nothing.pem"}, "TLS needs a certificate"),
    ],
)
def test_settings_that_protect_nothing_are_rejected(library, settings, message):
    with pytest.raises(ConfigError, match=message):
        run(library, host="127.0.0.1", port=0, hosts=(), ready=print, **settings)


def test_documentation_needs_no_network(client):
    assert "/static/docs.js" in client.get("/docs").text
    assert client.get("/redoc").status_code == 404
    described = client.get("/openapi.json").json()["paths"]
    searches = {f"/api/search/{by}" for by in ("image", "item/{id}", "text", "vector", "class")}
    assert searches <= set(described)


REQUESTS = {
    "a head": b"GET / HTTP/1.1\r\nHost: 127",
    "a body that nobody reads": (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n"
    ),
    "a body without an address": (
        b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
    "a picture": (
        b"POST /api/search/image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n"
    ),
}


def trickle(client, part):
    ended = time.monotonic() + 10
    while time.monotonic() < ended:
        client.sendall(part)
        time.sleep(0.05)


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_does_not_arrive_is_ended(library, request_, monkeypatch):
    monkeypatch.setattr("vicinal.retrieval.serve.server.ARRIVAL_SECONDS", 0.3)
    with bind("127.0.0.1", 0) as bound:
        server = Server(
            uvicorn.Config(create_application(library), http="h11", log_level="critical")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            with socket.create_connection(bound.getsockname(), timeout=0.1) as client:
                client.sendall(request_)
                with pytest.raises(ConnectionError):
                    trickle(client, b"1\r\na\r\n" if b"chunked" in request_ else b"a")
        finally:
            server.should_exit = True
            thread.join()
