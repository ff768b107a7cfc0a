"""HER's tables: every way of its parts once, each beside its twin."""

import pytest

from vicinal.bench import results
from vicinal.bench.hard_exemplars import PARTS, TWIN, parts_on_omniglot, weights_on_cub, weights_on_cub_features
from vicinal.bench.papers import SOFTMAX
from vicinal.bench.tables import Row
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, settings


def settings_of(row):
    return settings(apply(find_recipe(row.recipe), row.overrides))


def test_the_parts_are_on_and_off_in_all_eight_ways():
    table = parts_on_omniglot().check()
    found = {row.name: settings_of(row) for row in table.rows if row.name != SOFTMAX}
    switches = [(s["weighting"], s["attention"], s["regression"]) for s in found.values()]
    assert len(set(switches)) == 8 and found["weights + FCAM + orientation"] == settings_of(
        Row("all", "omniglot_cross_view")
    ), "all three are what the recipe does by itself"
    assert set(PARTS) <= found.keys() and table.network == TWIN and table.row(TWIN).twin is None
    for name, ours in found.items():
        differing = {key for key in ours if ours[key] != found[TWIN][key]}
        assert differing <= {"weighting", "attention", "regression"} and len(differing) == (
            0 if name == TWIN else 1 + name.count("+")
        )


def test_its_classifier_has_the_budget_of_the_twin():
    table = parts_on_omniglot()
    softmax, twin = settings_of(table.row(SOFTMAX)), settings_of(table.row(TWIN))
    assert {key for key in twin if softmax[key] != twin[key]} == {"loss", "optimisation"}
    assert {**twin["optimisation"], "loss_factor": 10.0} == softmax["optimisation"]


def test_no_row_recorded_before_loss_was_a_setting_is_taken_for_the_classifier():
    """A result agrees with any value of a setting that it does not know."""
    table = parts_on_omniglot()
    softmax = settings_of(table.row(SOFTMAX))
    for row in table.rows:
        if row.name != SOFTMAX:
            before = {key: value for key, value in settings_of(row).items() if key != "loss"}
            assert not results.agree(before, softmax), row.name


def test_its_rehearsal_has_all_rows_and_few_steps():
    reduced = parts_on_omniglot().reduced()
    assert len(reduced.rows) == 9 and all(row.twin == TWIN for row in reduced.rows[2:])
    assert all((s["epochs"], s["batches"]) == (1, 5) for s in map(settings_of, reduced.rows))


@pytest.mark.parametrize("make", [weights_on_cub_features, weights_on_cub])
def test_weights_differ_from_their_twin_in_the_variant_alone(make):
    table = make().check()
    softmax, plain, weighted = (settings_of(row) for row in table.rows)
    assert {key for key in plain if plain[key] != weighted[key]} == {"variant"}
    assert table.rows[2].twin == table.rows[1].name == table.network
    assert all(softmax[key] == plain[key] for key in ("epochs", "dim", "start"))
