"""What the benchmarks share: a results file that survives being cut off."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def measuring(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("measuring")


def test_a_line_that_was_cut_off_neither_counts_nor_swallows_the_next(measuring, tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    measuring.end_last_line(path)
    assert measuring.lines_of(path) == []
    path.write_text('{"set": "iris"}\n{"set": "wine", "parameters": {"t": 0.5}')  # ends with a brace, but is cut off
    measuring.end_last_line(path)
    with path.open("a") as file:
        file.write('{"set": "glass"}\n')
    assert [line["set"] for line in measuring.lines_of(path)] == ["iris", "glass"]
    text = path.read_text()
    measuring.end_last_line(path)
    assert path.read_text() == text


def test_lines_name_the_packages_that_numbers_come_from(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "commit", lambda: "1234abc")
    words = measuring.versions().split(", ")
    assert words[0] == "commit 1234abc"
    assert [word.split()[0] for word in words[1:]] == ["numpy", "scipy", "scikit-learn"]
