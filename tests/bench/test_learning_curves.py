"""Curves with bands: over seeds, without what a seed's held-out classes are easier or harder for all rows."""

from dataclasses import replace

import pytest

from vicinal.bench.learning_curves import MOST_CURVES, learning_curves
from vicinal.bench.run import collect


@pytest.fixture
def drawn(table, record, tmp_path):
    def make(values):
        record(table, values)
        return learning_curves(collect(table, tmp_path / "results"))

    return make


def test_a_seeds_own_level_is_taken_out_of_scores_and_left_in_losses(drawn):
    score, loss = drawn({"plain": [0.5, 0.6, 0.7], "method": [0.6, 0.7, 0.8]})
    assert score.title == "Validation recall@1" and loss.title == "Loss"
    # Seeds differ by 10 points, in mid-training by 5, and in all rows alike: 7.5 are the seed's own level.
    line = score.lines["plain"]
    assert line.mean == pytest.approx([0.3, 0.6]) and line.steps == [10, 20]
    assert line.high[-1] - line.low[-1] == pytest.approx(0.2 - 0.15)
    assert loss.lines["plain"].low[-1] == 0.5 and loss.lines["plain"].high[-1] == 0.7


def test_one_row_alone_keeps_its_spread(drawn):
    score, _ = drawn({"plain": [0.5, 0.6], "method": [0.6]})
    assert score.lines["plain"].low[-1] == 0.5 and score.lines["plain"].high[-1] == 0.6
    assert score.lines["method"].low == score.lines["method"].high


def test_of_many_rows_there_are_no_curves(table, record, tmp_path):
    record(table, {"plain": [0.5]})
    rows = tuple(replace(table.rows[0], name=f"row {number}") for number in range(MOST_CURVES + 1))
    assert learning_curves(collect(replace(table, rows=rows, network="row 0"), tmp_path / "results")) == []
