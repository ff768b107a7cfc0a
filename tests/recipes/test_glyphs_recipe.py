"""What the default recipe promises, on characters that training never saw."""

import pytest

from vicinal.training.console import Console
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import start


@pytest.mark.slow
def test_a_fifth_of_the_default_recipe_gains_twenty_points_over_untrained_and_pixels(tmp_path):
    recipe = apply(find_recipe("glyphs_multi_similarity"), ["epochs=2", "restarts=1"])
    run = start("glyphs_multi_similarity", recipe, tmp_path / "run", command="test", console=Console(quiet=True))
    recall = {row["name"]: row["metrics"]["recall@1"] for row in run.results["rows"]}
    assert recall["trained"] >= recall["untrained"] + 0.20
    assert recall["trained"] >= recall["raw pixels"] + 0.20
