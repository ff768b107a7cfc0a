"""Whatever strangers ask of ``vicinal serve``, and whatever its disk does."""

import json
import os
import warnings
from contextlib import ExitStack

import pytest

pytestmark = [pytest.mark.slow(5), pytest.mark.filterwarnings("ignore")]
pytest.importorskip("fastapi")

from vicinal.errors import VicinalError  # noqa: E402
from vicinal.retrieval.library import open_library  # noqa: E402
from vicinal.retrieval.serve import server  # noqa: E402

ODD = "0 47 -1 99999999999999999999 nan 1.5 ..%2f..%2foutside %00 %ff '\"<b> é ² --5 =1+1 007"
NAMES = "k label where offset limit max_distance name id q side spread generation x"
KINDS = ("application/json", "image/png", "multipart/form-data", "x", "")
HEADERS = ("host", "origin", "range", "sec-fetch-site", "content-length", "content-type")
CONTENTS = ("evil", "-1", "bytes=9-1", "cross-site", "1" * 30)


def drawn(draw, paths, png, bent):
    """One request: method, address, headers, body."""
    odd = [*ODD.split(), "a" * 5000, ""]
    names = NAMES.split()
    path = str(draw.choice(paths)).replace("{id}", str(draw.choice(odd)))
    asked = [f"{draw.choice(names)}={draw.choice(odd)}" for _ in range(int(draw.integers(4)))]
    method = str(draw.choice(["GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]))
    change = {"targets": [int(draw.integers(50))], "label": str(draw.choice(odd)) or "x"}
    bodies = (
        json.dumps({"vector": draw.normal(size=4).tolist()}).encode(),
        json.dumps(change).encode(),
        png,
    )
    body = bodies[int(draw.integers(3))]
    headers = {"content-type": str(draw.choice(KINDS))}
    if draw.random() < 0.1:
        headers[str(draw.choice(HEADERS))] = str(draw.choice(CONTENTS))
    body = bent(body, draw) if draw.random() < 0.6 else body
    return method, f"{path}?{'&'.join(asked)}", headers, body


@pytest.mark.parametrize("disk", ["whole", "full", "gone"])
def test_every_answer_is_a_problem_in_our_words_or_what_was_asked(
    attack, targets, tmp_path, monkeypatch, caplog, disk
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

    library = open_library(targets.run, device="cpu")
    application = server.create_application(library, writable=True)
    paths = [*application.openapi()["paths"], "/", "/docs", "/static/{id}", "/{id}"]
    png = next(targets.photos.rglob("*.png")).read_bytes()
    failing = {500, 503} if disk != "whole" else {503}

    def full(*_):
        raise OSError(28, "No space left on device")

    def ask(method, path, headers, body):
        answer = client.request(method, path, headers=headers, content=body)
        assert answer.status_code < 500 or answer.status_code in failing, answer.text[:200]
        assert "Traceback" not in answer.text
        if answer.status_code >= 400:
            if method != "HEAD" and headers.get("host") is None:
                assert isinstance(answer.json()["detail"], str)
            raise VicinalError(answer.text)

    with ExitStack() as stack:
        client = TestClient(application, base_url="http://localhost", raise_server_exceptions=True)
        stack.enter_context(client)
        if disk == "full":
            monkeypatch.setattr(os, "fsync", full)
        if disk == "gone":
            targets.run.rename(tmp_path / "elsewhere")
            stack.callback((tmp_path / "elsewhere").rename, targets.run)
        for _ in attack.times(5_000):
            asked = drawn(attack.draw, paths, png, attack.bent)
            attack.attempt(str(asked)[:200], lambda asked=asked: ask(*asked))
    assert not caplog.records
