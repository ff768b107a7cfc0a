"""Documents show what the results hold: each table between markers is made anew and its rows compared."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
documents = importlib.import_module("documents")
sys.path.remove(str(ROOT / "experiments"))
SHOWN = {
    (path, name): inside for path in documents.DOCUMENTS for name, inside in documents.shown(path)
}


def rows(text: str) -> list[str]:
    """The lines of a Markdown table below its head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_the_documents_have_tables():
    assert len(SHOWN) > 40 and all(rows(inside) for inside in SHOWN.values())


@pytest.mark.slow
@pytest.mark.parametrize("place", SHOWN, ids=lambda key: key[1])
def test_a_table_in_a_document_is_that_of_its_results(place):
    assert rows(documents.made(SHOWN[place], place[0])) == rows(SHOWN[place])
