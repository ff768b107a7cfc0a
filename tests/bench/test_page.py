"""Summaries, pages, figures and tables in documents: what they show, mark and leave alone."""

import pytest
from matplotlib.figure import Figure

from vicinal.bench.page import cells, columns, command, markdown, write_page
from vicinal.bench.results import Store
from vicinal.bench.run import collect
from vicinal.bench.summary import regressions, summarize
from vicinal.bench.table import Budget, row

VALUES = {
    "plain": [0.50, 0.52, 0.51],
    "method": [0.55, 0.58, 0.56],
    "untrained": [0.4] * 3,
    "PCA": [0.3] * 3,
}


@pytest.fixture
def summary(table, record, tmp_path):
    record(table, VALUES)

    def make(table, **changes):
        return summarize(collect(table.replace(**changes), Store(tmp_path / "results")))

    return make


def test_a_summary_has_means_paired_differences_and_marks(table, summary):
    found = {row.name: row for row in summary(table).rows}
    method = found["method"]
    assert method.scores["recall@1"].mean == pytest.approx(0.5633, abs=1e-4)
    assert method.difference.over_seeds.mean == pytest.approx(0.0533, abs=1e-4)
    assert method.difference.over_classes.mean == pytest.approx(0.1) and method.difference.p < 0.05
    assert not method.difference.claimed, "three seeds claim nothing"
    assert found["PCA"].marks == ("below untrained",)
    assert found["whitened PCA"].marks == ("incomplete: 0 of 3 seeds",)
    assert method.held_out == pytest.approx(0.2817, abs=1e-4)


def test_five_seeds_may_claim_and_other_data_or_trials_are_marked(table, record, tmp_path):
    record(
        table, {"plain": [0.50, 0.52, 0.51, 0.5, 0.51], "method": [0.55, 0.58, 0.56, 0.56, 0.57]}
    )
    record(table, {"method": [0.55]}, data="other", created="2027")
    rows = (table.row("plain"), row("method", "loss.beta=40", against="plain", trials=20))
    table = table.replace(
        seeds=5, rows=(table.rows[0].__class__("plain", table.rows[0].own, trials=3), rows[1])
    )
    found = summarize(collect(table, Store(tmp_path / "results"))).rows[-1]
    assert found.difference.claimed
    assert found.marks == (
        "other data or protocol than its baseline",
        "not as many trials as its baseline",
    )


def test_a_page_has_all_columns_and_text_stays_in_its_cell(table, summary):
    found = summary(table.replace(title="A <b>|</b>", finding="x & y"))
    assert {len(line) for line in cells(found)} == {len(columns(found))}
    text = markdown(found)
    assert "&lt;b>" in text and "x &amp; y" in text and "<b>" not in text
    assert "p (Holm)" in text and ": abc; 2 arm cores" in text
    assert "| whitened PCA; incomplete: 0 of 3 seeds | |" in text


def test_commands_name_file_table_and_variant(table):
    assert command(table).endswith("tiny.py::tiny --seeds 3")
    assert command(table.under("final")).endswith("::tiny --protocol final --seeds 3")
    tuned = table.replace(name="tiny-tuned", protocol="final", tuned=Budget(6, 2))
    assert command(tuned).endswith("::tiny --trials 6 --folds 2 --seeds 3")


def test_expected_values_are_checked(table, record, tmp_path):
    record(table, VALUES)
    table = table.replace(
        expected={"plain": (0.51, 0.001), "method": (0.5, 0.01), "whitened PCA": (0.3, 0.1)}
    )
    found = regressions(collect(table, Store(tmp_path / "results")))
    assert (
        len(found) == 2
        and "method: Recall@1 56.3, expected 50.0 ± 1.0" in found[0]
        and "0 of 3 seeds" in found[1]
    )


@pytest.mark.parametrize("held_out", [0.9, 1.0])
def test_rows_that_keep_their_start_say_so_instead_of_a_difference_of_0(
    held_out, table, record, tmp_path
):
    """`bench` printed "HDML 0.0 (0.0 to 0.0), p 1.000" where no step was better on the held-out
    classes than the start that both rows have."""
    table = table.replace(seeds=2)

    def method(scores, **facts):
        record(table, {"plain": [0.5, 0.6], "method": scores}, held_out=held_out, **facts)
        return summarize(collect(table, Store(tmp_path / "results"))).rows[-1]

    kept = method([0.5, 0.6], selected=0)
    assert kept.difference is None and "tested at its start" in kept.marks[0]
    assert method([0.6, 0.6], selected=0, created="2098").difference, "the starts differ"
    assert method([0.5, 0.6], selected=3, created="2099").difference


class Drawn:
    """A figure of nothing that takes the table's place in documents."""

    def rows(self):
        return ["plain"]

    def draw(self, summary):
        return Figure() if summary.rows[-1].done else None

    def excerpt(self, summary):
        return ["in place of the table"]


def test_figure_and_remark_are_on_the_page(table, summary, tmp_path):
    found = summary(
        table, figure=Drawn(), remark=lambda outcome: f"{len(outcome.lines['plain'])} of plain."
    )
    page, again = (write_page(found, tmp_path / name) for name in ("one", "two"))
    assert (page.parent / "tiny.png").read_bytes() == (again.parent / "tiny.png").read_bytes()
    text = page.read_text()
    assert "](tiny.png)" in text and "3 of plain.\n" in text
    assert "in place of the table" in text and "| method |" not in text
    assert "](tiny.png)" not in markdown(summary(table.replace(seeds=0), figure=Drawn()))
