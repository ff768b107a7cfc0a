"""Conditions and methods: what is sure, what to pick, and a document's table with a line for each condition."""

from dataclasses import replace

import pytest

from vicinal.bench.excerpt import excerpt
from vicinal.bench.matrix import matrix_lines, sure
from vicinal.bench.run import collect
from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import summarise
from vicinal.bench.tables import Matrix, Row

MATRIX = Matrix({"clean": {"mining": "method", "more": "third"}}, {"plain": {"clean": "plain"}})
PLAIN = [0.5, 0.6, 0.7]


@pytest.fixture
def summary(table, record, tmp_path):
    """``summary(method, third)``: the tiny table with a third row, whose twin is the method."""
    plain, method = table.rows
    third = Row("third", plain.recipe, (*plain.overrides, "beta=3"), twin="method")

    def make(*values):
        given = replace(table, rows=(plain, method, third), figure=MATRIX)
        record(given, dict(zip(("plain", "method", "third"), values, strict=False)))
        return summarise(collect(given, tmp_path / "results"))

    return make


def picked(summary):
    (line,) = matrix_lines(summary, MATRIX)
    return line.pick


def test_the_method_to_pick_scores_highest_of_those_that_are_surely_above_their_twins(summary):
    above = [value + 0.05 + 0.001 * place for place, value in enumerate(PLAIN)]
    assert picked(summary(PLAIN, above, [0.9, 0.5, 0.8])) == "mining"  # the other is not sure
    higher = [value + 0.01 + 0.001 * place for place, value in enumerate(above)]
    assert picked(summary(PLAIN, above, higher)) == "more"  # by less above its own twin, and still the best


def test_without_a_sure_one_plain_is_picked(summary):
    assert picked(summary(PLAIN, [0.45, 0.7, 0.6], [0.5, 0.6, 0.75])) == "plain"


def test_one_seed_picks_nothing(summary):
    assert picked(summary([0.5], [0.6], [0.7])) == ""


def test_sure_is_an_interval_that_leaves_zero():
    assert sure(Estimate(-0.05, -0.06, -0.04, 5)) and sure(Estimate(0.05, 0.04, 0.06, 5))
    assert not sure(Estimate(0.05, -0.01, 0.11, 5)) and not sure(Estimate(0.05, None, None, 1)) and not sure(None)


def test_a_document_has_a_line_for_each_condition(summary):
    text = excerpt(summary(PLAIN, [0.55, 0.651, 0.749]))
    assert "| clean | 60.0 ± 24.8 | **+5.0 ± 0.2** | – | mining |" in text and "| method |" not in text
    assert "over 3 seeds" in text and "Protocol validation" in text
