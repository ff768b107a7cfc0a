"""The readings of HDML's scale, and settings that cannot work."""

import pytest

from vicinal.errors import ConfigError
from vicinal.synthesis import HDMLConfig, published_n_pair, published_triplet


def test_presets_are_the_switches_and_a_switch_set_apart_wins():
    authors, paper = HDMLConfig("authors").preset(), HDMLConfig("paper").preset()
    assert (authors.averaged, paper.averaged) == ("weighted", "metric")
    assert (authors.label_factor, paper.label_factor) == (5e3, 0.5)
    assert (authors.label_average, paper.label_average) == ("parts", "sum")
    mixed = HDMLConfig("authors", averaged="metric", alpha=1.0).preset()
    assert (mixed.averaged, mixed.alpha, mixed.label_factor) == ("metric", 1.0, 5e3)


def test_triplets_have_the_papers_smaller_alpha_and_one_mean_over_rows():
    reading = HDMLConfig("authors").preset(triplets=True)
    assert (reading.alpha, reading.label_average) == (7.0, "rows")
    assert HDMLConfig("authors", alpha=3.0).preset(triplets=True).alpha == 3.0


def test_the_losses_of_each_reading():
    authors, paper = published_triplet("authors"), published_triplet("paper")
    assert (authors.squared, authors.reduction, authors.margin) == (True, "sum", 1.0)
    assert (paper.squared, paper.reduction) == (False, "mean")
    assert published_triplet("authors", squared=False).reduction == "sum"
    assert (published_n_pair("authors").similarity, published_n_pair("paper").similarity) == ("dot", "distance")
    assert published_n_pair("paper", l2=0.5).l2 == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale": "author"}, "did you mean 'authors'"),
        ({"syn_grad": "none"}, "unknown syn_grad"),
        ({"reference": "far"}, "unknown reference"),
        ({"alpha": -1.0}, "alpha is at least 0"),
        ({"window": 0}, "window is at least 1"),
        ({"hardest": 0}, "hardest is at least 1"),
        ({"generator_rate": 0.0}, "generator_rate is positive"),
        ({"real_share": 1.5}, "between 0 and 1"),
        ({"generate": False}, "such as real_share=0.5"),
        ({"push_positives": 0.5, "path": "arc"}, "straight"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        HDMLConfig(**settings).preset()
