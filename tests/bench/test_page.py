"""Summaries, pages, figures and tables in documents: what they show, mark and leave alone."""

import pytest

from vicinal.bench.figures import draw, png
from vicinal.bench.page import check_markers, excerpt, html, markdown, write_into, write_pages
from vicinal.bench.results import Store
from vicinal.bench.run import collect
from vicinal.bench.summary import departures, learning_curves, summarize
from vicinal.bench.table import Budget, Matrix, Scatter, row
from vicinal.bench.text import cells, columns, command, matrix_cells, matrix_lines, short_cells, short_columns
from vicinal.errors import DataError

VALUES = {"plain": [0.50, 0.52, 0.51], "method": [0.55, 0.58, 0.56], "untrained": [0.4] * 3, "PCA": [0.3] * 3}


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
    assert method.held_out == pytest.approx(0.2817, abs=1e-4) and method.words == "loss.beta=40"


def test_five_seeds_may_claim_and_other_data_or_trials_are_marked(table, record, tmp_path):
    record(table, {"plain": [0.50, 0.52, 0.51, 0.5, 0.51], "method": [0.55, 0.58, 0.56, 0.56, 0.57]})
    record(table, {"method": [0.55]}, data="other", created="2027")
    rows = (table.row("plain"), row("method", "loss.beta=40", against="plain", trials=20))
    table = table.replace(seeds=5, rows=(table.rows[0].__class__("plain", table.rows[0].own, trials=3), rows[1]))
    found = summarize(collect(table, Store(tmp_path / "results"))).rows[-1]
    assert found.difference.claimed
    assert found.marks == ("other data than its baseline", "not as many trials as its baseline")


def test_heads_and_cells_are_as_many_and_text_stays_in_its_cell(table, summary):
    renamed = table.replace(title="A <b>|</b>", finding="x & y")
    found = summary(renamed)
    assert {len(cells(found, row)) for row in found.rows} == {len(columns(found))}
    assert {len(short_cells(found, row)) for row in found.rows} == {len(short_columns(found))}
    text, page = markdown(found), html(found)
    assert "&lt;b>" in text and "x &amp; y" in text and "<b>|</b>" not in text + page
    assert "- method (plain +): `loss.beta=40`, 2 s of training; commit abc" in text
    assert 'id="charts-data"' in page and len(found.charts) == 2


def test_commands_name_file_table_and_variant(table):
    assert command(table).endswith("tiny.py::tiny --seeds 3")
    assert command(table.under("authors")).endswith("::tiny --protocol authors --seeds 3")
    assert command(table.reduced()).endswith("::tiny --quick --seeds 1")
    tuned = table.replace(name="tiny-tuned", protocol="final", tuned=Budget(6, 2))
    assert command(tuned).endswith("::tiny --trials 6 --folds 2 --seeds 3")


def test_the_best_of_a_kind_is_chosen_on_held_out_classes(table, summary):
    text = markdown(summary(table, best_of={"methods": ["method"], "others": ["plain"]}))
    assert "of the methods method (held out 28.2, test Recall@1 56.3 ± 3.8)" in text
    assert "the first minus the second is +5.3" in text
    lacking = markdown(summary(table.under("final"), best_of={"methods": ["method"]}))
    assert "method have no held-out score" in lacking and "--trials 1" in lacking


def test_expected_values_are_checked(table, record, tmp_path):
    record(table, VALUES)
    table = table.replace(expected={"plain": (0.51, 0.001), "method": (0.5, 0.01), "whitened PCA": (0.3, 0.1)})
    found = departures(collect(table, Store(tmp_path / "results")))
    assert len(found) == 2 and "method: Recall@1 56.3, expected 50.0 ± 1.0" in found[0] and "0 of 3 seeds" in found[1]


def test_figures_are_drawn_from_results_and_are_the_same_again(table, summary, tmp_path):
    scatter = Scatter("hardness/lambda", "λ", ("plain", "method"), level="plain")
    found = summary(table, figure=scatter)
    assert png(draw(found)) == png(draw(summary(table, figure=scatter))) and draw(summary(table)) is None
    assert draw(summary(table, figure=Scatter("none", "x", ("plain", "method")))) is None
    text, _ = write_pages(found, tmp_path / "pages")
    assert (tmp_path / "pages" / "tiny.png").is_file() and "](tiny.png)" in text.read_text()


def test_a_matrix_picks_what_is_significantly_above_its_baseline(table, summary):
    figure = Matrix({"clean": {"ours": "method"}}, {"plain": {"clean": "plain"}})
    found = summary(table, figure=figure)
    (line,) = matrix_lines(found, figure)
    assert line.pick == "ours" and matrix_cells(line) == ["clean", "51.0 ± 2.5", "**+5.3 ± 1.4**", "ours"]
    assert draw(found) is not None and "| clean | 51.0 ± 2.5 |" in excerpt(found)
    one = summary(table, figure=figure, seeds=1)
    assert matrix_lines(one, figure)[0].pick == "" and "nothing is picked" in excerpt(one)


def test_a_document_gets_each_table_between_its_markers_and_stays_else(table, summary, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = tmp_path / "docs.md"
    document.write_bytes(b"before\r\n<!-- bench:tiny:start -->\nold\n<!-- bench:tiny:end -->\nafter")
    found = summary(table)
    write_pages(found, tmp_path / "results")
    write_into(document, [("tiny", excerpt(found, document, tmp_path / "results"))])
    whole = document.read_bytes().decode()
    assert whole.startswith("before\r\n") and whole.endswith("\nafter") and "old" not in whole
    assert "[its page](results/tiny.md)" in whole and "| method |" in whole
    for text, message in (("no markers", "first marker 0 times"), ("<!-- bench:tiny:start -->\n" * 2, "2 times")):
        document.write_text(text)
        with pytest.raises(DataError, match=message):
            check_markers(document, ["tiny"])
    with pytest.raises(DataError, match="Create it first"):
        check_markers(tmp_path / "none.md", ["tiny"])


def test_learning_curves_are_drawn_without_the_level_of_a_seed(table, record, tmp_path):
    record(table, {"plain": [0.2, 0.4], "method": [0.4, 0.6]})
    recall, loss = learning_curves(collect(table, Store(tmp_path / "results")))
    assert recall.lines["method"].mean == pytest.approx([0.25, 0.5])
    assert recall.lines["method"].low == pytest.approx(recall.lines["method"].high, abs=0.06)
    assert loss.lines["plain"].low == [0.1, 0.2] and loss.lines["plain"].high == [0.2, 0.4]
    many = table.replace(rows=table.rows + tuple(row(str(n), against="plain") for n in range(30)))
    assert learning_curves(collect(many, Store(tmp_path / "results"))) == []
