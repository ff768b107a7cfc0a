"""Every packaged recipe builds, trains, and goes on from its own saved state as if it had never stopped."""

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.loader import load
from vicinal.data.splits import hold_out
from vicinal.training.checkpoint import load_checkpoint, random_state, save_checkpoint, set_random_state
from vicinal.training.experiment import build_method
from vicinal.training.listing import listing, packaged_recipes
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, from_settings, settings

REAL_DATA = ("cub_", "omniglot_")  # recipes named so need the shared data sets
SMALL = ["transform.size=32", "transform.canvas=36", "transform.resize=36"]  # a pretrained network, within seconds


def marks(name):
    """Photographs through a pretrained network take a core half a minute."""
    real = [pytest.mark.data] if name.startswith(REAL_DATA) else []
    photographs = name.startswith("cub_") and not name.startswith("cub_features")
    return [*real, pytest.mark.slow] if photographs else real


RECIPES = [pytest.param(name, marks=marks(name)) for name in packaged_recipes()]


@pytest.fixture
def own_data(tmp_path):
    """A small set of the user's own for the recipes that ask for one, and what else makes a recipe small."""
    rng = np.random.default_rng(0)
    for label in range(20):
        (tmp_path / "pictures" / f"c{label}").mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / f"c{label}" / f"{number}.png")
    labels = np.repeat(np.arange(40), 6)
    np.savez(tmp_path / "vectors.npz", features=rng.normal(size=(len(labels), 16)).astype(np.float32), labels=labels)
    views = [f"pictures/c{label}/{{}}.png" for label in range(20)]
    rows = [",".join(view.format(number) for number in (0, 1)) for view in views]
    (tmp_path / "pairs.csv").write_text("\n".join(["query_path,gallery_path", *rows]))
    small = ["transform.size=32", "transform.canvas=32", "transform.resize=32"]
    return {
        "images": [f"data={tmp_path / 'pictures'}", "classes=4", "per_class=3", *small],
        "images_from_scratch": [f"data={tmp_path / 'pictures'}", "classes=4", "per_class=3"],
        "features": [f"data={tmp_path / 'vectors.npz'}", "classes=4", "per_class=3"],
        "cross_view": [f"data={tmp_path / 'pairs.csv'}", "data.test=0", "pairs=3", "dim=8", *small],
        "omniglot_cross_view": ["pairs=8"],  # 256 take a core a minute
    }


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_goes_on_from_its_saved_state(name, own_data, tmp_path):
    kind = find_recipe(name)
    photographs = SMALL if hasattr(kind, "weights") else []
    recipe = apply(kind, own_data.get(name, photographs))
    records = recipe.data.load()
    if recipe.validation:
        records = hold_out(records, recipe.validation, recipe.seed)
    train, cpu = records.part("train"), torch.device("cpu")

    def steps(method, first, last):
        plan = method.batches(0)[first:last]
        batches = load(train, plan, recipe.transform, seed=recipe.seed, epoch=0)
        return [{k: float(v) for k, v in method.step(batch).items()} for batch in batches]

    method = build_method(recipe, train, cpu)
    steps(method, 0, 2)
    path = save_checkpoint(tmp_path, 2, {"method": method.state_dict(), "random": random_state()})
    went_on = steps(method, 2, 3)

    again = build_method(from_settings(type(recipe), settings(recipe)), train, cpu)
    state = load_checkpoint(path)
    again.load_state_dict(state["method"])
    set_random_state(state["random"])
    assert steps(again, 2, 3) == went_on
    for a, b in zip(method.embedder.state_dict().values(), again.embedder.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    shares = {"inseparable_share/similar", "inseparable_share/dissimilar"}
    assert {"loss", "active", "spread"} | shares <= went_on[0].keys()


@pytest.mark.parametrize("name", packaged_recipes())
def test_a_recipe_says_what_it_costs_and_what_to_expect(name):
    found = listing(packaged_recipes()[name])
    assert found.title and found.cost and found.expected
    assert "TODO" not in found.cost + found.expected
    assert f"vicinal train {name}" in packaged_recipes()[name].read_text()
