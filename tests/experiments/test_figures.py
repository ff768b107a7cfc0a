"""Figures and remarks of the tables: drawn from results, the same again, and honest where seeds are
few."""

import importlib
import sys
from pathlib import Path

import pytest

from vicinal.bench.page import markdown, write_page
from vicinal.bench.results import Store, append
from vicinal.bench.run import collect, jobs, rows_of
from vicinal.bench.summary import summarize
from vicinal.bench.table import Table, baseline, row
from vicinal.errors import ConfigError

FOLDER = str(Path(__file__).parents[2] / "experiments")
sys.path.insert(0, FOLDER)
figures, best_of = (importlib.import_module(name) for name in ("figures", "best_of"))
sys.path.remove(FOLDER)
VALUES = {"plain": [0.50, 0.52, 0.51], "method": [0.55, 0.58, 0.56]}


def table(**options):
    rows = baseline("plain", loss="triplet"), row("method", method="hdml", against="plain")
    return Table("Tiny", *rows, **{"seeds": 3, **options})


@pytest.fixture
def summary(tmp_path):
    def make(table):
        for job in jobs(table):
            for name in rows_of(job):
                if name in VALUES:
                    value = VALUES[name][job.seed]
                    facts = {"row": name, "created": "2026", "held_out": value / 2}
                    facts["metrics"] = {"recall@1": value}
                    facts["scalars"] = {"hardness/lambda": 1 - value}
                    append(tmp_path / f"{table.name}.jsonl", {**job.identity(), **facts})
        return summarize(collect(table, Store(tmp_path)))

    return make


def test_a_scatter_is_drawn_from_results_and_is_the_same_again(summary, tmp_path):
    scatter = figures.Scatter("hardness/lambda", "λ", ("plain", "method"), level="plain")
    found = summary(table(figure=scatter))
    one, other = (write_page(found, tmp_path / name).with_suffix(".png") for name in "ab")
    assert one.read_bytes() == other.read_bytes() and "| method |" in markdown(found)
    assert figures.Scatter("none", "x", ("plain", "method")).draw(found) is None


def test_a_matrix_picks_what_is_significantly_above_its_baseline(summary):
    matrix = figures.Matrix({"clean": {"ours": "method"}}, {"plain": {"clean": "plain"}})
    found = summary(table(figure=matrix))
    (line,) = matrix.lines(found)
    assert line.pick == "ours" and line.cells() == ["clean", "51.0 ± 2.5", "**+5.3 ± 1.4**", "ours"]
    assert matrix.draw(found) is not None and "| clean | 51.0 ± 2.5 |" in markdown(found)
    one = summary(table(figure=matrix, seeds=1))
    assert matrix.lines(one)[0].pick == "" and "nothing is picked" in markdown(one)


def test_the_best_of_a_kind_is_chosen_on_held_out_classes(summary):
    text = markdown(
        summary(table(remark=best_of.BestOf({"methods": ["method"], "others": ["plain"]})))
    )
    assert "of the methods method (held out 28.2, test Recall@1 56.3 ± 3.8)" in text
    assert "the first minus the second is +5.3" in text
    lacking = markdown(
        summary(table(protocol="final", remark=best_of.BestOf({"methods": ["method"]})))
    )
    assert "method have no held-out score" in lacking and "--trials 1" in lacking


@pytest.mark.parametrize(
    "figure", [figures.Scatter("s", "axis", ("b",)), figures.Matrix({"clean": {"m": "b"}})]
)
def test_a_figure_of_an_unknown_row_is_rejected(figure):
    with pytest.raises(ConfigError, match="unknown row"):
        table(figure=figure)
