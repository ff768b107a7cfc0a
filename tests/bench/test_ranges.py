"""Ranges of tables: every one can be drawn from, and a method tries what its twin tries."""

import pytest

from vicinal.bench.catalogue import TABLES, find_table
from vicinal.bench.ranges import RATE, STEPS, space_of
from vicinal.bench.search_space import Choice, random_trial
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe

HERE = [table for table in TABLES if table.name.endswith(("cub_features", "-cub", "her-omniglot_pairs"))]
LOSSES = ("improved", "DANML")  # rows that differ from their twins in the loss


@pytest.mark.parametrize("table", HERE, ids=lambda table: table.name)
def test_what_is_drawn_can_be_set(table):
    for row in table.rows:
        space = space_of(row)
        values = random_trial(space, 0, 1)
        apply(find_recipe(row.recipe), [*row.overrides, *(f"{key}={value}" for key, value in values.items())])
        assert {RATE, STEPS} <= space.keys()


@pytest.mark.parametrize("table", HERE, ids=lambda table: table.name)
def test_a_method_has_the_ranges_of_its_twin_and_its_own(table):
    for row in table.rows:
        if row.twin and not row.name.startswith(LOSSES) and "cost" not in row.name:
            ours, twins = space_of(row), space_of(table.row(row.twin))
            shared = {key: part for key, part in twins.items() if key in ours}
            assert shared.items() <= ours.items() and {RATE, STEPS} <= shared.keys()
            if not table.row(row.twin).twin:  # a plain row has nothing that its method lacks
                assert shared == twins


def test_multi_similarity_is_tuned_on_the_grid_of_danml():
    table = find_table("anml-cub_features")
    rival, ours = (space_of(table.row(name)) for name in ("multi-similarity", "DANML"))
    assert {"anml.alpha", "anml.beta", "anml.lambda1"} <= rival.keys() and ours.keys() - rival.keys() == {"anml.sigma"}


def test_what_a_row_sets_itself_is_not_searched():
    table = find_table("hdml_ablations-cub_features")
    assert "hdml.alpha" in space_of(table.row("HDML"))
    assert "hdml.alpha" not in space_of(table.row("α = 0.25"))


def test_steps_are_half_to_twice_the_rows_own():
    table = find_table("hdml-cub_features")
    usual, longer = (space_of(table.row(name))[STEPS] for name in ("triplet", "triplet at HDML's cost"))
    assert usual == Choice(("5", "10", "20")) and longer == Choice(("8", "16", "32"))


def test_a_recipe_with_a_margin_of_its_own_has_it_searched():
    table = find_table("glyphs")
    own = apply(find_recipe("glyphs_triplet"), ()).margin
    found = space_of(table.row("triplet"))["margin"]
    assert (found.low, found.high) == (own / 2, own * 2) and "margin" not in space_of(table.row("N-pair"))
