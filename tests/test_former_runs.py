"""A run written by version 0.1 can still be evaluated, embedded, indexed, searched, compared and
reported."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import vicinal as package
from vicinal.cli.main import run as main
from vicinal.errors import RunError
from vicinal.training.console import Console
from vicinal.training.run import resume

FORMER = Path(__file__).parent / "former"


@pytest.fixture
def former(tmp_path, monkeypatch):
    """The run with its data beside it, in the current folder."""
    shutil.copytree(FORMER / "run", tmp_path / "run")
    shutil.copy(FORMER / "former.npz", tmp_path / "former.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["vicinal", *words])
    with contextlib.suppress(SystemExit):  # an error would show in what is missing from the output
        main()
    return capsys.readouterr().out


def test_it_measures_what_it_measured(former, monkeypatch, capsys):
    found = json.loads(call(monkeypatch, capsys, "evaluate", "run", "--json"))
    written = json.loads((former / "results.json").read_text())
    [trained] = [row["metrics"] for row in written["rows"] if row["name"] == "trained"]
    assert found["rows"][0]["metrics"]["recall@1"] == pytest.approx(trained["recall@1"])


def test_it_embeds_and_searches(former, monkeypatch, capsys):
    call(monkeypatch, capsys, "embed", "run", "former.npz", "--out", "vectors.npz")
    assert np.load("vectors.npz")["embeddings"].shape == (96, 4)
    assert package.load("run").embed(np.zeros((2, 8), np.float32)).shape == (2, 4)
    call(monkeypatch, capsys, "index", "run", "--split", "test")
    assert "matches" in call(
        monkeypatch, capsys, "search", "run", "--id", "3", "--k", "2", "--format", "json"
    )


def test_it_is_reported_with_its_settings(former, monkeypatch, capsys):
    call(monkeypatch, capsys, "report", "run")
    page = (former / "report.html").read_text()
    assert "<h1>former</h1>" in page and "preset features" in page and "evaluate_every" in page


def test_going_on_with_it_names_the_version_that_can(former):
    with pytest.raises(RunError, match=r"earlier version of vicinal.*0\.1\.0"):
        resume(former, console=Console(quiet=True))
