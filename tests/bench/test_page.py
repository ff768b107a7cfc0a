"""The page escapes what it is given and says what is missing."""

import re
from dataclasses import replace

from vicinal.bench.page import html, markdown, write_pages
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise


def made(table, record, tmp_path, **changes):
    record(table, {"untrained": [0.4] * 3, "plain": [0.5, 0.52, 0.51], "method": [0.55, 0.58]})
    return summarise(collect(replace(table, **changes), tmp_path / "results"))


def test_markdown_has_a_cell_for_each_column(table, record, tmp_path):
    text = markdown(made(table, record, tmp_path, says="It holds | mostly."))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1 and len(rows) == 2 + 5
    assert "| method | 56.5 ± 19.1 |" in text and "Recall@1 90.0 | 20 | 2/3 | incomplete: 2 of 3 seeds |" in text
    assert "It holds | mostly." in text and "vicinal bench tiny" in text and "commit abc" in text


def test_nothing_from_results_becomes_markup(table, record, tmp_path):
    rows = (table.rows[0], replace(table.rows[1], name="<script>alert(1)</script>"))
    table = replace(table, rows=rows, title="a <b> & c")
    record(table, {rows[1].name: [0.5, 0.6, 0.7]}, commit="<img src=x>")
    summary = summarise(collect(table, tmp_path / "results"))
    page = html(summary)
    assert "<script>alert" not in page and "<img src=x>" not in page and "a &lt;b&gt; &amp; c" in page
    assert "<script" not in markdown(summary)


def test_the_page_needs_no_network_and_runs_only_its_own_script(table, record, tmp_path):
    page = html(made(table, record, tmp_path))
    assert not re.search(r"(src|href)=[\"']?https?:", page)
    assert "default-src 'none'" in page and "script-src 'sha256-" in page
    assert "prefers-color-scheme: dark" in page and 'data-chart="curve-0"' in page


def test_a_table_without_results_has_a_page_too(table, tmp_path):
    text, page = write_pages(summarise(collect(table, tmp_path)), tmp_path)
    assert "incomplete: 0 of 3 seeds" in text.read_text() and "Nothing has run yet" in page.read_text()
