"""ANML's Table 2 from made-up units: who is among the best, who is not compared, and what is missing."""

from dataclasses import replace

import pytest

from vicinal.bench.linear_contestants import OWN
from vicinal.bench.linear_plan import FULL
from vicinal.bench.linear_table import difference, lacking, reading

PLAN = replace(FULL, sets=("iris", "wine"), splits=10)


def line(split, method, accuracy, name="iris"):
    return {"set": name, "split": split, "method": method, "accuracy": accuracy, "oracle": 0.995, "trained_on": 105,
            "tested_on": 45}  # fmt: skip


@pytest.fixture
def lines():
    """Ten splits of one set, of which PNCA is far above the others by cross-validation."""
    return [line(split, method, 0.9 + 0.09 * (method == "pnca") + split / 1e4) for split in range(10) for method in OWN]


def row(lines, by="accuracy", name="iris"):
    """Method to cell of a set."""
    found = reading(lines, PLAN, by)
    cells = next(row.cells for row in found.rows if row.name == name)
    return dict(zip(found.methods, cells, strict=True))


def test_both_readings_say_who_is_among_the_best(lines):
    ours, paper = reading(lines, PLAN, "accuracy"), reading(lines, PLAN, "oracle")
    assert [method for method, cell in row(lines).items() if cell.best] == ["pnca"]
    assert row(lines)["pnca"].score == "99.0 ± 0.0" and row(lines)["lda"].score == "90.0 ± 0.0"
    assert "pnca against nca, 1 sets, significantly: above 1, not told apart 0, below 0." in ours.sentences
    assert ours.sentences[0].endswith("1 of 1 sets.")
    assert all(cell.best for cell in row(lines, "oracle").values()) and "not told apart 1" in paper.sentences[1]


def test_a_peer_with_few_easy_splits_is_not_the_best_of_all():
    def easier(split, method, accuracy):
        return line(split, method, accuracy + 0.09 * (split < 2))

    lines = [easier(split, m, 0.89 + 0.01 * (m == "pnca")) for split in range(10) for m in OWN]
    cells = row(lines + [easier(split, "lmnn", 0.89) for split in range(2)])
    assert [method for method, cell in cells.items() if cell.best] == ["pnca"]
    assert (cells["lmnn"].score, cells["lmnn"].remark) == ("98.0 ± 0.0", "(2)") and cells["pnca"].remark == ""


def test_what_a_peer_with_few_splits_is_told_to_be_above_is_not_among_the_best():
    level = [0.9, 0.8, 0.85, 0.95, 0.7, 0.9, 0.8, 0.85, 0.95, 0.7]
    lines = [line(split, m, level[split] + 0.01 * (m == "pnca") * (-1) ** split) for split in range(10) for m in OWN]
    assert all(cell.best for cell in row(lines).values() if cell.score)
    peer = [line(split, "lmnn", level[split] + 0.05 + split / 1e4) for split in range(4)]
    assert not row(lines + peer)["lda"].best and row(lines + peer)["lmnn"].best


def test_a_single_split_is_shown_and_compared_with_none(lines):
    cell = row([*lines, line(0, "itml", 1.0)])["itml"]
    assert (cell.score, cell.remark, cell.best) == ("100.0", "(1)", False)
    assert sum(cell.best for cell in row([*lines, line(0, "itml", 1.0)]).values()) == 1


def test_a_row_that_lacks_methods_or_splits_is_incomplete_and_judged_later(lines):
    some = [*lines, *(line(split, "lda", 0.9, "wine") for split in range(4))]
    iris, wine = reading(some, PLAN, "accuracy").rows
    assert (iris.label, iris.splits, iris.complete) == ("iris", "10", True)
    assert (wine.label, wine.splits, wine.complete) == ("wine (incomplete)", "4 of 10", False)
    assert not any(cell.best for cell in wine.cells) and row(some, name="wine")["lda"].score == "90.0 ± 0.0"
    late = [*lines, *(line(split, m, 0.9, "wine") for split in range(10) for m in OWN if (split, m) != (9, "nca"))]
    found = reading(late, PLAN, "accuracy")
    assert [row.complete for row in found.rows] == [True, False] and found.sentences[0].endswith("2 of 2 sets.")
    assert row(late, name="wine")["nca"].remark == "(9)"


def test_nothing_measured_is_an_empty_table_that_says_nothing():
    found = reading([], PLAN, "accuracy")
    assert found.methods == OWN and found.sentences == ()
    assert [row.splits for row in found.rows] == ["0 of 10"] * 2 and not any(cell.score for cell in found.rows[0].cells)


def test_methods_are_compared_on_the_splits_that_both_have():
    ours = {number: line(number, "pnca", 0.9 + number / 1e3) for number in range(5)}
    theirs = {number: line(number, "nca", 0.8 + number / 1e3 + number**2 / 1e5) for number in range(3, 9)}
    assert difference(ours, theirs, "accuracy") == "above" and difference(theirs, ours, "accuracy") == "below"
    assert difference({4: ours[4]}, theirs, "accuracy") == "not told apart"
    assert difference(ours, ours, "accuracy") == "not told apart"


def test_what_is_missing_is_named_and_methods_that_lack_the_same_together(lines):
    wine = [line(split, method, 0.9, "wine") for split in range(10) for method in OWN]
    few = [line(split, "lmnn", 0.9, name) for name in PLAN.sets for split in range(3 + (name == "wine"))]
    refused = [{"set": "iris", "split": split, "method": "itml", "error": "not symmetric."} for split in range(10)]
    slow = {**line(0, "nca", 0.9, "wine"), "converged": False}
    assert lacking([*lines, *wine, *few, *refused, slow], PLAN) == [
        "Incomplete: lmnn. Of 10 splits: 4 on wine; 3 on iris.",
        "Incomplete: itml. Of 10 splits: 0 on wine.",
        "itml fails on 10 splits of iris: not symmetric.",
        "Last fits that ran out of steps: nca 1.",
    ]
    assert lacking([*lines, *wine], PLAN) == ["Incomplete: lmnn, itml. Of 10 splits: 0 on every set."]
