"""The best row is the one that held-out classes choose, whatever the test says."""

from dataclasses import replace

import pytest

from vicinal.bench.best import contest
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise
from vicinal.bench.tables import Row
from vicinal.bench.wording import best
from vicinal.errors import ConfigError


@pytest.fixture
def three(table):
    """Two combinations and one other row; ``made`` gives each the held-out scores that a test asks for."""
    plain, method = table.rows
    rows = (plain, replace(method, twin=None), Row("both", plain.recipe, (*plain.overrides, "beta=3"), twin="plain"))
    return replace(table, rows=rows, best_of={"combinations": ("method", "both"), "others": ("plain",)})


@pytest.fixture
def made(three, record, tmp_path):
    def make(held_out, *, protocol="validation", tested=None):
        given = replace(three, protocol=protocol)
        tested = tested or {"plain": [0.5, 0.6], "method": [0.9, 0.9], "both": [0.6, 0.7]}
        for name, values in tested.items():
            record(given, {name: values}, selected={"value": held_out.get(name), "by": "validation recall@1"})
        return collect(given, tmp_path / "results")

    return make


def test_held_out_classes_choose_and_the_test_is_only_read_off(made):
    outcome = made({"plain": 0.4, "method": 0.3, "both": 0.35})
    found = contest(outcome)
    assert [(one.kind, one.row, one.held_out) for one in found.best] == [
        ("combinations", "both", pytest.approx(0.35)),
        ("others", "plain", pytest.approx(0.4)),
    ]
    assert found.difference.mean == pytest.approx(0.1) and found.lacking == ()
    said = best(summarise(outcome))
    assert said.startswith(
        "Chosen on held-out training classes: of the combinations both (held out 35.0, test Recall@1"
    )
    assert said.endswith("On the test classes the first is +10.0 (+10.0 to +10.0) from the second.")


def test_the_test_classes_of_the_authors_protocol_choose_nothing(made):
    outcome = made({"plain": 0.4, "method": 0.3, "both": 0.35}, protocol="authors")
    found = contest(outcome)
    assert found.best == () and set(found.lacking) == {"plain", "method", "both"}
    assert "not chosen yet" in best(summarise(outcome)) and "vicinal bench tiny --trials 1" in best(summarise(outcome))


def test_rows_are_compared_over_the_seeds_that_all_have(made):
    found = contest(made({"plain": 0.4, "method": 0.3}, tested={"plain": [0.5, 0.6], "method": [0.5], "both": []}))
    assert found.best == () and found.lacking == ("both",)


def test_folds_of_a_tuned_table_count_before_its_seeds(made, three):
    outcome = made({"plain": 0.4, "method": 0.3, "both": 0.35}, protocol="final")
    scores = {"plain": (0.2, 0.3), "method": (0.6, 0.7), "both": (0.1, 0.2)}
    rows = tuple(replace(row, held_out=scores[row.name]) for row in outcome.table.rows)
    outcome.table = replace(outcome.table, rows=rows)
    assert [one.row for one in contest(outcome).best] == ["method", "plain"]


def test_a_table_without_kinds_names_no_best_and_unknown_rows_are_refused(table, three, tmp_path):
    assert contest(collect(table, tmp_path)) is None and best(summarise(collect(table, tmp_path))) == ""
    with pytest.raises(ConfigError, match="did you mean 'both'"):
        replace(three, best_of={"combinations": ("bothh",)}).check()
