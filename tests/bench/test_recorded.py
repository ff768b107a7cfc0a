"""Documents show what the results files hold: each table between markers is made anew and compared."""

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from vicinal.bench import results
from vicinal.bench.catalogue import find_table
from vicinal.bench.excerpt import excerpt
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise
from vicinal.bench.table_tuning import tune_table
from vicinal.bench.tables import Budget, Table

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks" / "results"
MADE = re.compile(r"^`vicinal bench (\S+)( --protocol \S+)? --seeds (\d+)`: ", re.M)
TUNED = re.compile(r"^`vicinal bench (\S+) --trials (\d+) --folds (\d+) --seeds (\d+)`: ", re.M)
IN_PART = {"anml-cub": ["DANML"]}  # tuned by --rows, and its page says so


def shown() -> dict[tuple[str, str], str]:
    """By document and table, the text between the markers."""
    found = {}
    for name in ("results.md", "her.md", "when_does_hardness_help.md"):
        text = (ROOT / "docs" / name).read_text()
        for table, inside in re.findall(r"^<!-- bench:(\S+):start -->\n(.*?)^<!-- bench:\1:end -->", text, re.S | re.M):
            found[name, table] = inside
    return found


SHOWN = shown()
cached = cache(results.read_folder)  # 20 MB that no test changes


def test_the_documents_have_tables():
    assert len(SHOWN) > 40 and all(inside.strip() for inside in SHOWN.values())


@pytest.mark.slow
@pytest.mark.parametrize("place", [key for key, inside in SHOWN.items() if MADE.search(inside)], ids=lambda key: key[1])
def test_a_table_in_a_document_is_that_of_its_results(place, monkeypatch):
    monkeypatch.setattr(results, "read_folder", cached)
    name, protocol, seeds = MADE.search(SHOWN[place]).groups()
    table = replace(find_table(name), seeds=int(seeds))
    table = table if protocol is None else table.under(protocol.split()[1])
    check(table, SHOWN[place])


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [key for key, inside in SHOWN.items() if TUNED.search(inside)], ids=lambda key: key[1]
)
def test_a_tuned_table_in_a_document_is_that_of_its_trials(place, monkeypatch, tmp_path, console):
    monkeypatch.setattr(results, "read_folder", cached)
    shutil.copytree(RECORDED / "tuning", tmp_path / "tuning")  # choices are written again
    name, *numbers = TUNED.search(SHOWN[place]).groups()
    trials, folds, seeds = map(int, numbers)
    table, rows = replace(find_table(name), seeds=seeds), IN_PART.get(name, ())
    how = {"slots": 1, "console": console, "rows": rows, "minutes": 0.0}
    check(tune_table(table, Budget(trials, folds), tmp_path, tmp_path / "runs", **how), SHOWN[place])


def check(table: Table, inside: str) -> None:
    """The table made anew is the one shown, but for links, which depend on where a document lies."""
    made = excerpt(summarise(collect(table, RECORDED)))
    lines = [line for line in inside.splitlines() if not line.startswith(("![", "Each row's command"))]
    assert [line for line in lines if line] == [line for line in made.splitlines() if line]
