"""Overrides are typed by annotations; what does not fit is refused with the nearest name."""

from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import pytest

from vicinal.data.folder import Folder
from vicinal.data.glyphs import Glyphs
from vicinal.data.records import Dataset
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.errors import ConfigError
from vicinal.methods.optimisation import Optimisation
from vicinal.training.overrides import apply
from vicinal.training.recipe import Recipe, find_recipe, from_settings, settings


@dataclass(frozen=True, kw_only=True)
class Example(Recipe):
    data: Dataset = Glyphs()
    transform: Transform = ImageTransform(size=32)
    optimisation: Optimisation = Optimisation()
    widths: tuple[int, ...] = (1, 2)
    kind: Literal["hard", "soft"] = "hard"
    rate: float = 0.1
    flag: bool = False

    def build(self, train):
        raise NotImplementedError


def test_values_take_the_type_of_their_field():
    recipe = apply(
        Example, ["widths=3,4,5", "kind=soft", "rate=1e-3", "flag=true", "workers=none", "epochs=7", "data.seed=3"]
    )
    assert recipe.widths == (3, 4, 5) and recipe.kind == "soft" and recipe.rate == 1e-3 and recipe.flag is True
    assert recipe.workers is None and recipe.epochs == 7 and recipe.data == Glyphs(seed=3)
    assert apply(Example, ["optimisation.learning_rate=0.5"]).optimisation == Optimisation(learning_rate=0.5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch=3", "did you mean 'epochs'"),
        ("epochs=three", r"epochs is a number \(int\), but 'three'"),
        ("epochs=2.5", "number"),
        ("kind=sofd", "did you mean 'soft'"),
        ("flag=maybe", "true or false"),
        ("optimisation=1", r"optimisation\.learning_rate"),
        ("optimisation.rate=1", "unknown setting 'rate'"),
        ("rate.x=1", "no settings of its own"),
        ("epochs", "key=value"),
        ("epochs=0", "at least 1"),
        ("validation=1.5", "share of the training classes"),
    ],
)
def test_what_does_not_fit_is_refused(override, message):
    with pytest.raises(ConfigError, match=message):
        apply(Example, [override])


def test_settings_of_a_group_change_together():
    """ALA's name asks for episodes, and episodes for a loss that they carry: in between, no combination is allowed."""
    settings = ["method.name=ala", "method.loss=triplet", "method.batches=episodes"]
    kind = find_recipe("glyphs_methods")
    found = {repr(apply(kind, order).method) for order in permutations(settings)}
    assert len(found) == 1 and "name='ala'" in found.pop()


def test_parts_reach_into_the_value_that_is_given_beside_them(tmp_path):
    for order in ([f"data={tmp_path}", "data.seed=3"], ["data.seed=3", f"data={tmp_path}"]):
        assert apply(Example, order).data == Folder(str(tmp_path), seed=3)


def test_a_required_setting_is_asked_for():
    @dataclass(frozen=True, kw_only=True)
    class Needy(Recipe):
        transform: Transform = ImageTransform(size=32)

        def build(self, train):
            raise NotImplementedError

    with pytest.raises(ConfigError, match="data="):
        apply(Needy, [])


def test_settings_round_trip_through_json():
    recipe = apply(Example, ["widths=3,4", "optimisation.learning_rate=0.5", "data.seed=4"])
    assert from_settings(Example, settings(recipe)) == recipe
    with pytest.raises(ConfigError, match="unknown setting 'foo'"):
        from_settings(Example, settings(recipe) | {"foo": 1})


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'glyphs_multi_similarity'"):
        find_recipe("glyphs_multi_similarit")
    with pytest.raises(ConfigError, match="does not exist"):
        find_recipe("missing.py")
