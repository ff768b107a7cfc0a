"""The short table of a document: what it keeps, where it goes, and that nothing else in the document moves."""

from dataclasses import replace

import pytest

from vicinal.bench import excerpt as module
from vicinal.bench.excerpt import check_markers, excerpt, markers, write_into
from vicinal.bench.page import write_pages
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise
from vicinal.bench.tables import Matrix, Row
from vicinal.bench.wording import command
from vicinal.errors import DataError

VALUES = {"untrained": [0.52] * 3, "plain": [0.5, 0.52, 0.51], "method": [0.55, 0.58]}


@pytest.fixture
def made(table, record, tmp_path):
    def make(**changes):
        if not (tmp_path / "results").exists():
            record(table, VALUES)
        return summarise(collect(replace(table, **changes), tmp_path / "results"))

    return make


@pytest.fixture
def document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "docs" / "results.md"
    path.parent.mkdir()
    path.write_text("# Results\n\n" + "\nold\n".join(markers("tiny")) + "\n\nafter `<!-- bench:tiny:end -->`\n")
    return path


def test_it_holds_scores_differences_published_numbers_and_what_must_not_be_overlooked(made):
    lines = excerpt(made(says="It holds.")).splitlines()
    assert lines[0] == "**A tiny table.** It holds."
    assert "| row | Recall@1 | MAP@R | twin | Recall@1 to twin | published | trials | seeds |" in lines
    assert "| untrained | 52.0 ± 0.0 | 26.0 ± 0.0 | – | – | – | – | 3 |" in lines
    assert "| plain | 51.0 ± 2.5 | 25.5 ± 1.2 | – | – | – | – | 3; below untrained |" in lines
    (method,) = (line for line in lines if line.startswith("| method "))
    assert "| plain | +5.5 (−0.9 to +11.9) | 90.0 | 20 | incomplete: 2 of 3 seeds |" in method
    assert lines[-1] == "`vicinal bench tiny --seeds 3`: commit abc; 2 arm cores, 1 thread a run, torch 2.0."
    assert any("protocol `validation`" in line and "Published: the paper's own Recall@1" in line for line in lines)


def test_a_wide_table_keeps_its_first_metric_and_those_that_readers_compare(made):
    wide = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi", "f1", "train recall@1")
    heads = excerpt(made(metrics=wide)).splitlines()[2]
    assert heads.startswith("| row | Recall@1 | MAP@R | NMI | F1 | twin |")
    few = ("recall@1", "recall@2", "map@r")
    assert "| Recall@1 | Recall@2 | MAP@R | twin |" in excerpt(made(metrics=few)).splitlines()[2]


@pytest.mark.parametrize(("trials", "sentence"), [(2, "held-out training classes: 2."), (None, "were not counted.")])
def test_equal_trials_are_a_sentence_and_no_column(made, table, trials, sentence):
    text = excerpt(made(rows=tuple(replace(row, trials=trials) for row in table.rows)))
    assert sentence in text and "| trials |" not in text


def test_without_twins_and_papers_there_are_no_such_columns(made, table):
    text = excerpt(made(rows=(table.rows[0],)))
    assert (
        text.splitlines()[2] == "| row | Recall@1 | MAP@R | seeds |" and "twin" not in text and "Published" not in text
    )


def test_nothing_from_results_becomes_markup(table, tmp_path):
    row = Row("<!-- bench:tiny:end --> | x", table.rows[0].recipe, table.rows[0].overrides)
    text = excerpt(summarise(collect(replace(table, rows=(row,), network=row.name, says="<b>"), tmp_path)))
    assert "<" not in text and "\\| x" in text and "nothing has run yet" in text


def test_the_command_is_one_that_runs_the_table(table):
    assert command(table) == "vicinal bench tiny --seeds 3"
    assert command(table.under("authors")) == "vicinal bench tiny --protocol authors --seeds 3"
    assert command(table.reduced().under("final")) == "vicinal bench tiny --quick --protocol final --seeds 2"


def test_only_what_is_between_the_markers_changes_and_writing_again_changes_nothing(made, document, tmp_path):
    write_into(document, [made()], tmp_path / "results")
    text = document.read_text()
    start, end = markers("tiny")
    assert text == f"# Results\n\n{start}\n{excerpt(made())}{end}\n\nafter `{end}`\n"
    write_into(document, [made()], tmp_path / "results")
    assert document.read_text() == text


def test_the_page_and_the_figure_are_linked_where_they_are(made, document, tmp_path):
    summary = made(figure=Matrix({"clean": {"mining": "method"}}))
    write_pages(summary, tmp_path / "results")
    write_into(document, [summary], tmp_path / "results")
    assert "[its page](../results/tiny.md)" in document.read_text()
    assert "![A tiny table](../results/tiny.png)" in document.read_text()


def test_no_link_leads_out_of_the_working_directory(made, document, tmp_path, monkeypatch):
    write_pages(made(), tmp_path / "results")
    monkeypatch.chdir(document.parent)
    write_into(document, [made()], tmp_path / "results")
    assert "tiny.md" not in document.read_text()


@pytest.mark.parametrize(
    "text",
    ["", "{0}\n", "{1}\n{0}\n", "{0}\n{1}\n{0}\n{1}\n", "`{0}`\n`{1}`\n", "x {0}\nx {1}\n"],
    ids=["none", "one", "order", "twice", "inline", "behind text"],
)
def test_a_document_without_the_place_is_refused_with_the_lines_to_add(made, document, tmp_path, text):
    document.write_text(text.format(*markers("tiny")))
    before = document.read_bytes()
    with pytest.raises(DataError, match="<!-- bench:tiny:start -->\n<!-- bench:tiny:end -->"):
        check_markers(document, ["tiny"])
    with pytest.raises(DataError, match="one place for table 'tiny'"):
        write_into(document, [made()], tmp_path / "results")
    assert document.read_bytes() == before


def test_a_document_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="Make it first"):
        check_markers(tmp_path / "nowhere.md", ["tiny"])


def test_all_tables_are_written_in_one_step_or_none(made, document, tmp_path, monkeypatch):
    before = document.read_bytes()
    with pytest.raises(DataError, match="one place for table 'other'"):
        write_into(document, [made(), made(name="other")], tmp_path / "results")
    assert document.read_bytes() == before
    written = []
    monkeypatch.setattr(module, "write_text", lambda path, text: written.append(path))
    document.write_text(document.read_text() + "\n".join(markers("other")))
    write_into(document, [made(), made(name="other")], tmp_path / "results")
    assert written == [document]
