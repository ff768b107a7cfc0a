"""Opening a library, binding a port, and a real server in a process of its own."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib import resources

import numpy as np
import pytest
import torch

from vicinal.cli.index import serve as command
from vicinal.errors import ConfigError, RunError
from vicinal.retrieval.calibration import count_pairs
from vicinal.retrieval.collection import model_fingerprint
from vicinal.retrieval.generations import publish
from vicinal.retrieval.serve.guard import HEADERS
from vicinal.retrieval.serve.library import open_library
from vicinal.retrieval.serve.server import SHIPPED, allowed_hosts, bind
from vicinal.retrieval.store import Item


def test_a_library_embeds_as_the_collection_was_embedded(served):
    pictures = str(served.path.parent / "pictures")
    library = open_library(served.path, device="cpu", images=[pictures])
    snapshot = library.collection.snapshot()
    assert library.kind == "images" and library.threshold is None
    np.testing.assert_allclose(library.embed(snapshot.image(7)), snapshot.vector(7), atol=1e-5)


def test_a_collection_of_another_model_is_rejected_with_both_lengths(served, tmp_path):
    publish(tmp_path / "other", [Item(0, "a.png", "a")], np.ones((1, 5), np.float32), dim=5)
    with pytest.raises(ConfigError, match=r"16 dimensions.*5"):
        open_library(served.path, collection=tmp_path / "other", device="cpu")


def test_a_run_that_was_calibrated_shows_its_threshold(served):
    snapshot = open_library(served.path, device="cpu").collection.snapshot()
    labels = torch.tensor(
        [sorted(snapshot.labels()).index(item.label) for item in snapshot.items()]
    )
    counts = count_pairs(torch.from_numpy(np.array(snapshot.vectors())), labels)
    kept = {name: np.array(value) for name, value in vars(counts).items()}
    model = np.array(model_fingerprint(served))
    served.write_arrays("calibration", **kept, model=model)
    try:
        usual, asked = (
            open_library(served.path, device="cpu", rate=rate).threshold for rate in (None, 0.1)
        )
        assert usual == counts.threshold(0.001)
        # 0.001 would be less than one pair.
        assert usual.distance == counts.threshold(1 / 432).distance
        assert asked == counts.threshold(0.1) and asked.distance > usual.distance
    finally:
        (served.artifacts_path / "calibration.npz").unlink()


def test_a_run_without_a_collection_says_how_to_make_one(write_run, tmp_path):
    with pytest.raises(RunError, match="vicinal index"):
        open_library(write_run(tmp_path / "run").path, device="cpu")


def test_without_the_extra_the_command_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'vicinal\[serve\]'"):
        command(tmp_path)


def test_a_port_that_is_taken_is_rejected_with_advice():
    with bind("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="--port 0"):
        bind("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["no such host", "256.1.1.1", "192.0.2.1"])
def test_an_address_that_is_not_this_machines_is_rejected(host):
    with pytest.raises(ConfigError, match="--host"):
        bind(host, 0)


def test_only_this_machine_listens_by_default():
    with bind("127.0.0.1", 0) as bound:
        assert bound.getsockname()[0] == "127.0.0.1" and bound.family == socket.AF_INET


def test_names_of_the_server():
    assert allowed_hosts("127.0.0.1", ()) == ["localhost", "127.0.0.1", "[::1]"]
    assert allowed_hosts("192.168.0.7", ["birds.lan"])[3:] == ["192.168.0.7", "birds.lan"]
    assert "0.0.0.0" not in allowed_hosts("0.0.0.0", ()) and "[fe80::1]" in allowed_hosts(
        "fe80::1", ()
    )


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(served):
    words = [
        sys.executable,
        "-m",
        "vicinal",
        "serve",
        str(served.path),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "36 items of generation 1, 16 dimensions\n"
            address = process.stdout.readline().split()[2]
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(f"{address}api/search/item/3?k=2", timeout=10) as answer:
                assert len(json.load(answer)["matches"]) == 2
                assert "server" not in answer.headers
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) in (0, 130)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


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
    if name.endswith(".html"):
        assert not re.findall(r"<script(?![^>]*\bsrc=)", text)
        assert not re.findall(r"\son\w+=|style=", text)
    if package == "vicinal.retrieval.serve":
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text
        )


def test_every_file_that_the_page_asks_for_is_shipped():
    for package, name in SHIPPED.values():
        text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
        assert set(re.findall(r"/static/[\w.]+", text)) <= set(SHIPPED)


def test_a_request_that_fails_says_so_without_a_traceback(library, caplog, client_of):
    def fails(*_):
        raise RuntimeError("the secret of the house")

    from dataclasses import replace

    with client_of(
        replace(library, collection=type("Broken", (), {"snapshot": fails})())
    ) as client:
        answer = client.get("/api/about")
    assert answer.status_code == 500
    assert set(answer.json()) == {"asked", "got", "advice"} and "secret" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "the secret of the house" in caplog.text


def test_documentation_needs_no_network(client):
    assert "/static/docs.js" in client.get("/docs").text
    assert client.get("/redoc").status_code == 404
    described = client.get("/openapi.json").json()["paths"]
    assert {
        "/api/search/image",
        "/api/search/item/{id}",
        "/api/search/vector",
        "/api/search/class",
    } <= set(described)
