"""What ``vicinal recipes NAME`` says of a recipe's settings can be typed back."""

import pytest

from vicinal.training.explanation import explain
from vicinal.training.listing import packaged_recipes
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, settings


@pytest.mark.parametrize("name", sorted(packaged_recipes()))
def test_every_default_can_be_given_back_as_it_is_shown(name):
    kind = find_recipe(name)
    shown = [(one.key, one.value) for one in explain(kind) if not one.key.startswith("data")]
    data = next(one for one in explain(kind) if one.key == "data")
    given = [] if data.value is not None else ["data=glyphs"]
    typed = [f"{key}={value}" for key, value in shown if value is not None]
    assert settings(apply(kind, [*given, *typed])) == settings(apply(kind, given))


def test_settings_come_with_their_words_and_the_recipes_own_come_first():
    found = explain(find_recipe("images_from_scratch"))
    by_key = {one.key: one for one in found}
    assert found[0].key == "data" and found[0].value is None
    assert by_key["skip_corrupt"].value == "false" and "unreadable images" in by_key["skip_corrupt"].words
    assert by_key["recalls"].value == "1,2,4,8" and by_key["workers"].value == "none"
    assert "side of the square" in by_key["transform.size"].words  # of a group's own docstring
    keys = list(by_key)
    assert keys.index("per_class") < keys.index("seed")
