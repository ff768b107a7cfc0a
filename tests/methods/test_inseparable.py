"""Whatever the method, a step measures the inseparable samples (ANML, Section 4.1), and its report tells of them."""

import pytest
import torch

from vicinal.data.loader import load
from vicinal.methods.contender import Contender
from vicinal.training.experiment import build_method
from vicinal.training.recipe import find_recipe

METHODS = {
    "plain": Contender(loss="danml"),
    "hdml": Contender(name="hdml"),
    "loop": Contender(name="loop"),
    "ala": Contender(name="ala", batches="episodes", loss="triplet"),
    "hdml_ala": Contender(name="hdml_ala", batches="episodes", loss="triplet"),
    "htl": Contender(name="htl", loss="hierarchical"),
    "htl_hdml": Contender(name="htl_hdml", loss="hierarchical"),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_step_measures_the_inseparable_samples_and_says_how_to_read_them(method):
    recipe = find_recipe("glyphs_methods")(method=method, widths=(4, 8))
    train = recipe.data.load().part("train")
    built = build_method(recipe, train, torch.device("cpu"))
    batch = next(iter(load(train, built.batches(0)[:1], recipe.transform, seed=recipe.seed, epoch=0)))
    found = built.step(batch)
    shares = [float(found[f"inseparable_share/{kind}"]) for kind in ("similar", "dissimilar")]
    assert min(shares) >= 0 and 0 < sum(shares) <= 1
    assert "ANML, Section 4.1" in built.readings["inseparable_share"]
