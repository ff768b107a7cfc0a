"""Documents show what the results hold: each table is made anew and its rows compared."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
documents = importlib.import_module("documents")
sys.path.remove(str(ROOT / "experiments"))


def rows(text: str) -> list[str]:
    """The lines of a Markdown table below its head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_tables_have_pages():
    pages = documents.pages().values()
    assert len(pages) > 30 and all(rows(path.read_text(encoding="utf-8")) for path in pages)


@pytest.mark.slow
@pytest.mark.parametrize("path", documents.pages().values(), ids=lambda path: path.stem)
def test_a_page_is_that_of_its_results(path):
    assert rows(documents.page(path)) == rows(path.read_text(encoding="utf-8"))


def test_what_documents_take_from_the_pages_is_there():
    made = 0
    for path in documents.WRITTEN:
        text = path.read_text(encoding="utf-8")
        made += text.count("<!-- experiments:") // 2
        assert documents.renewed(text) == text, "run `python experiments/documents.py`"
    assert made >= len(documents.GENERATED)
