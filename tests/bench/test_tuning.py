"""Search spaces: what is written is what is drawn from, and what cannot be drawn from is
rejected."""

import pytest

from vicinal.bench.tuning import draw, parse, words_of
from vicinal.errors import ConfigError


def test_draws_stay_inside_and_are_spread_over_each_range():
    """Independent draws once put four of five rates into the upper fifth of their range."""
    space, _ = parse(["a=0.5..2", "b=1e-4..1e-2:log", "c=1..4", "d=x,y"])
    trials = draw(space, 64, 0)
    a, b = ([float(trial[key]) for trial in trials] for key in "ab")
    assert 0.5 <= min(a) < 0.55 and 1.95 < max(a) <= 2
    assert abs(sum(value < 1e-3 for value in b) - 32) <= 2  # half below the middle decade
    for key, values in (("c", "1234"), ("d", "xy")):
        counts = [sum(trial[key] == value for trial in trials) for value in values]
        assert sum(counts) == 64 and max(counts) - min(counts) <= 4


def test_listed_values_are_tried_once_each_with_what_the_experiment_has():
    """Of four losses in four trials one ran twice, as trial 0 and again, and one never."""
    space, _ = parse(["loss=triplet,n_pair,margin,circle"])
    drawn = draw(space, 9, 0, known=[{"loss": "margin"}])
    assert sorted(trial["loss"] for trial in drawn) == ["circle", "n_pair", "triplet"]
    space, _ = parse(["loss=triplet,n_pair", "model.dim=1..3"])
    drawn = draw(space, 9, 0, known=[{"loss": "margin", "model.dim": 1}])
    assert len({tuple(trial.values()) for trial in drawn}) == len(drawn) == 6


def test_trials_are_a_function_of_the_seed_and_more_of_them_go_on():
    space, _ = parse(["a=0..1.0", "b=p,q"])
    assert draw(space, 3, 0) == draw(dict(reversed(space.items())), 5, 0)[:3] != draw(space, 3, 1)
    assert draw({}, 3, 0) == []


def test_negative_and_whole_ranges_are_read():
    space, fixed = parse(["a=-1.5..-0.5", "b=-2..2", "c=.5..1", "name=plain"])
    assert [(space[key].low, space[key].high) for key in "abc"] == [(-1.5, -0.5), (-2, 2), (0.5, 1)]
    assert draw(space, 1, 0)[0]["b"] in ("-2", "-1", "0", "1", "2")
    assert fixed == ["name=plain"] and parse(["d=1,2,"])[0]["d"] == ("1", "2")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a=2..1", "low < high"),
        ("a=x..1", "low < high"),
        ("a=0..1.0:log", "above 0"),
        ("a=1.0..9:ln", "got '1.0..9:ln'"),
        ("a", "key=value"),
        ("c=1,2", "given twice"),
    ],
)
def test_what_cannot_be_searched_is_rejected(word, message):
    with pytest.raises(ConfigError, match=message):
        parse(["b=1", "c=0..1", word])


def test_one_value_for_several_settings():
    space, _ = parse(["loss.a+loss.b=0.1..0.9"])
    (first, second) = words_of(draw(space, 1, 0)[0])
    assert first.startswith("loss.a=") and second == first.replace("loss.a", "loss.b")
