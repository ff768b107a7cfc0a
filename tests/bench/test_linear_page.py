"""The pages of ANML's Table 2, and that the document shows what was recorded."""

from dataclasses import replace
from pathlib import Path

import pytest

from vicinal.bench.excerpt import check_markers, markers
from vicinal.bench.linear_contestants import OWN
from vicinal.bench.linear_page import FLATTERS, markdown, tables, write_into, write_pages
from vicinal.bench.linear_plan import FULL, QUICK
from vicinal.bench.results import read
from vicinal.errors import DataError

ROOT = Path(__file__).parents[2]
PLAN = replace(FULL, sets=("iris", "wine"), splits=2)


@pytest.fixture
def lines():
    """One set whole, the other with an error of which nobody knows what it says."""
    found = [
        {"set": "iris", "split": split, "method": method, "accuracy": 0.9 + 0.09 * (method == "pnca"), "oracle": 0.995,
         "trained_on": 105, "tested_on": 45, "versions": "commit 12ab, numpy 2"}
        for split in range(2) for method in OWN
    ]  # fmt: skip
    return [*found, {"set": "wine", "split": 0, "method": "itml", "error": "<script>alert(1)</script> & more"}]


def test_the_page_holds_both_readings_what_is_missing_and_how_it_was_measured(lines, tmp_path):
    text, page = write_pages(lines, PLAN, tmp_path)
    assert (text.name, page.name) == ("anml_linear.md", "anml_linear.html")
    ours, paper = text.read_text().split(FLATTERS)
    assert "| iris | 2 |" in paper and "the paper" not in ours
    printed = ["", "", "96.11", "97.47", "95.76", "98.87", "99.89", "99.79"]
    assert f"|\n| *the paper* |  | {' | '.join(printed)} |\n" in paper
    assert "| iris | 2 | 90.0 ± 0.0 |" in ours and ours.count("| **99.0 ± 0.0** |") == 1
    assert paper.count("**99.5 ± 0.0**") == len(OWN) and "| wine (incomplete) | 0 of 2 |" in ours
    assert "- itml fails on 1 splits of wine: &lt;script>" in paper and "at most 30 points" in paper
    assert "`vicinal bench anml_linear`" in paper and "- 16 units: commit 12ab, numpy 2" in paper
    shown = page.read_text()
    assert shown.count('<tr class="printed">') == 2 and "<td>98.87</td><td>99.89</td><td>99.79</td></tr>" in shown
    assert shown.count('<td class="best">99.0 ± 0.0 </td>') == 1 and "wine (incomplete)" in shown
    assert "<script" not in shown and "&lt;script&gt;alert(1)" in shown and "default-src 'none'" in shown


def test_a_page_of_nothing_says_so():
    assert "Nothing has run yet." in markdown([], PLAN) and "Incomplete: " in markdown([], PLAN)


def test_only_what_is_between_the_markers_changes(lines, tmp_path):
    document = tmp_path / "document.md"
    document.write_text("before\n" + "\nold\n".join(markers(PLAN.name)) + "\nafter\n")
    write_into(document, lines, PLAN)
    shown = f"<!-- bench:anml_linear:start -->\n{tables(lines, PLAN)}\n<!-- bench:anml_linear:end -->"
    assert document.read_text() == f"before\n{shown}\nafter\n"
    document.write_text("before\n")
    with pytest.raises(DataError, match=r"one place for table 'anml_linear'(?s:.)*<!-- bench:anml_linear:start -->"):
        check_markers(document, [PLAN.name])


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=lambda plan: plan.name)
def test_the_document_shows_what_was_recorded(plan):
    """After new results: ``vicinal bench anml_linear --page --into docs/anml_linear.md``, the same with ``--quick``."""
    lines, notes = read(ROOT / "benchmarks" / "results" / f"{plan.kept}.jsonl")
    start, end = markers(plan.name)
    assert not notes
    assert f"{start}\n{tables(lines, plan)}\n{end}" in (ROOT / "docs" / "anml_linear.md").read_text()
