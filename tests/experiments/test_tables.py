"""The tables of ``experiments``: every row composes and differs from its baseline in what it says
alone."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from vicinal.bench.job import Job
from vicinal.bench.table import load_tables
from vicinal.bench.tuning import draw, parse, words_of
from vicinal.config import compose, from_words

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
FILES = [
    path
    for path in sorted(FOLDER.glob("*.py"))
    if re.search(r"^TABLES? = ", path.read_text(), re.M)
]
TABLES = {table.name: table for path in FILES for table in load_tables(str(path))}


@pytest.fixture
def shared(monkeypatch):
    """``shared("published")``: a module that all experiments share."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    yield __import__
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            del sys.modules[name]


def test_names_are_different_and_every_finding_has_its_table(shared):
    counts = Counter(table.name for path in FILES for table in load_tables(str(path)))
    assert max(counts.values()) == 1
    findings = shared("findings").FINDINGS
    told = {
        name
        for table in TABLES.values()
        for name in (table.name, *(f"{table.name}-{v}" for v in table.findings))
    }
    assert set(findings) <= told and all(
        findings[name] == TABLES[name].finding for name in findings if name in TABLES
    )


@pytest.mark.slow(30)
@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_row_composes_and_differs_from_its_baseline_in_what_it_says_alone(table):
    rows = [row for row in table.rows if not row.former]
    jobs = {row.name: Job(table, row, "trained", 0) for row in rows}
    configs = {name: job.config() for name, job in jobs.items()}
    slots = {name: config.slots() for name, config in configs.items()}
    assert len({job.identity()["slots"] for job in jobs.values()}) == len(rows), (
        "two rows are the same"
    )
    for name, job in jobs.items():
        space, _ = parse([*table.search, *job.row.search])
        for values in draw(space, 1, 0):  # what is searched composes, too
            trial = from_words(words_of(values))
            compose(*job.layers(), trial, from_words(["training.validation=0"]))
        assert configs[name].evaluation.recalls and configs[name].preset == table.name
        if (baseline := job.row.against) is not None:
            differing = {slot for slot in slots[name] if slots[name][slot] != slots[baseline][slot]}
            assert differing <= {"method", "loss", "sampler", "training", "model"}, name


def test_a_row_of_two_tables_is_one_run():
    def slots(table, row):
        return Job(TABLES[table], TABLES[table].row(row), "trained", 0).identity()["slots"]

    assert (
        slots("hdml-glyphs", "N-pair")
        == slots("hdml_ablations-glyphs", "N-pair")
        == slots("headline-glyphs", "N-pair")
    )
    assert slots("hdml-cub", "HDML (N-pair)") == slots("hdml_ablations-cub", "HDML")
    assert slots("combinations-omniglot", "DANML") == slots("anml-omniglot", "DANML")


def test_every_printed_number_stands_beside_a_row(shared):
    published = shared("published")
    for printed, table in (
        *(
            (published.HDML, "hdml"),
            (published.ALA, "ala"),
            (published.ANML, "anml"),
            (published.HTL, "survey"),
        ),
    ):
        for data, rows in printed.items():
            found = TABLES[f"{table}-{data}"]
            for name, scores in rows.items():
                assert scores.items() <= found.row(name).published.items() and set(scores) <= set(
                    found.metrics
                )


def test_the_best_combination_is_chosen_among_all_combinations():
    for name, table in TABLES.items():
        if name.startswith("combinations"):
            chosen = [
                *table.remark.kinds["combinations"],
                *table.remark.kinds["others"],
                "normalized softmax",
            ]
            assert sorted(chosen) == sorted(row.name for row in table.rows)
