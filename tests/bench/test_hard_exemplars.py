"""HER's tables: every way of its parts once, each beside its twin."""

import pytest

from vicinal.bench.hard_exemplars import PARTS, TWIN, parts_on_omniglot, weights_on_cub, weights_on_cub_features
from vicinal.bench.search_space import parse, random_trial
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, settings


def settings_of(row):
    return settings(apply(find_recipe(row.recipe), row.overrides))


def test_the_parts_are_on_and_off_in_all_eight_ways():
    table = parts_on_omniglot().check()
    found = {row.name: settings_of(row) for row in table.rows}
    switches = [(s["weighting"], s["attention"], s["regression"]) for s in found.values()]
    assert len(set(switches)) == 8 and found["weights + FCAM + orientation"] == settings_of(
        type(table.rows[0])("all", "omniglot_cross_view")
    ), "all three are what the recipe does by itself"
    assert set(PARTS) <= found.keys() and table.rows[0].name == TWIN and table.rows[0].twin is None
    for name, ours in found.items():
        differing = {key for key in ours if ours[key] != found[TWIN][key]}
        assert differing <= {"weighting", "attention", "regression"} and len(differing) == (
            0 if name == TWIN else 1 + name.count("+")
        )


def test_its_rehearsal_has_all_eight_rows_and_few_steps():
    reduced = parts_on_omniglot().reduced()
    assert len(reduced.rows) == 8 and all(row.twin == TWIN for row in reduced.rows[1:])
    assert all((s["epochs"], s["batches"]) == (1, 5) for s in map(settings_of, reduced.rows))


def test_the_documented_search_for_the_rate_tries_two_others():
    """docs/her.md: trial 0 is the recipe's own rate, 3e-3 then; seed 3 draws 1e-2 and 1e-3 next."""
    space, _ = parse(["optimisation.learning_rate=1e-3,3e-3,1e-2"])
    assert [*random_trial(space, 3, 1).values(), *random_trial(space, 3, 2).values()] == ["1e-2", "1e-3"]


@pytest.mark.parametrize("make", [weights_on_cub_features, weights_on_cub])
def test_weights_differ_from_their_twin_in_the_variant_alone(make):
    table = make().check()
    softmax, plain, weighted = (settings_of(row) for row in table.rows)
    assert {key for key in plain if plain[key] != weighted[key]} == {"variant"}
    assert table.rows[2].twin == table.rows[1].name == table.network
    assert all(softmax[key] == plain[key] for key in ("epochs", "dim"))
    assert softmax["optimisation"]["learning_rate"] == plain["optimisation"]["learning_rate"]
