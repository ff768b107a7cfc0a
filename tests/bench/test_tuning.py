"""Search spaces: what is written is what is drawn from, and what cannot be drawn from is
rejected."""

from math import log10

import pytest

from vicinal.bench.tuning import Choice, Range, parse, random_trial, words_of
from vicinal.errors import ConfigError


def test_draws_stay_inside_and_fill_their_scale():
    space, _ = parse(["a=0.5..2", "b=1e-4..1e-2:log", "c=1..3", "d=x,y"])
    trials = [random_trial(space, 0, number) for number in range(1, 400)]
    a, b = ([float(trial[key]) for trial in trials] for key in "ab")
    assert 0.5 <= min(a) < 0.52 and 1.98 < max(a) <= 2
    assert sum(value < 1e-3 for value in b) / len(b) == pytest.approx(
        0.5, abs=0.08
    )  # half below the middle decade
    for key, values in (("c", ["1", "2", "3"]), ("d", ["x", "y"])):
        counts = [sum(trial[key] == value for trial in trials) for value in values]
        assert min(counts) > 0.8 * len(trials) / len(values) and sum(counts) == len(trials)


@pytest.mark.parametrize("seed", range(5))
def test_few_trials_are_spread_over_each_range(seed):
    """Independent draws once put four of five rates into the upper fifth of their range."""
    space, _ = parse(["a=0..1.0", "b=1e-4..1:log", "c=1,2,3,4"])
    drawn = [random_trial(space, seed, number) for number in range(1, 17)]
    for count in (2, 4, 8, 16):
        parts = {
            "a": [int(count * float(trial["a"])) for trial in drawn[:count]],
            "b": [int(count * (4 + log10(float(trial["b"]))) / 4) for trial in drawn[:count]],
        }
        assert all(sorted(found) == list(range(count)) for found in parts.values())
    assert sorted(trial["c"] for trial in drawn[:4]) == ["1", "2", "3", "4"]
    pairs = {(float(trial["a"]) < 0.5, float(trial["b"]) < 1e-2) for trial in drawn}
    assert len(pairs) == 4, "two settings do not move together"


def test_a_trial_is_a_function_of_seed_and_number():
    space, _ = parse(["a=0..1.0", "b=p,q"])
    assert random_trial(space, 0, 3) == random_trial(dict(reversed(space.items())), 0, 3)
    assert random_trial(space, 0, 3) != random_trial(space, 0, 4) != random_trial(space, 1, 4)


def test_spaces_that_share_a_range_try_the_same_values_of_it():
    space, _ = parse(["rate=1e-4..1e-2:log", "epochs=2,4,8"])
    wider, _ = parse(["alpha=0..1", "rate=1e-4..1e-2:log", "epochs=2,4,8", "zeta=p,q"])
    for number in range(1, 20):
        assert random_trial(space, 0, number).items() <= random_trial(wider, 0, number).items()


def test_negative_and_whole_ranges_are_read():
    space, fixed = parse(["a=-1.5..-0.5", "b=-2..2", "c=.5..1", "name=plain"])
    assert space == {"a": Range(-1.5, -0.5), "b": Range(-2, 2, whole=True), "c": Range(0.5, 1)}
    assert fixed == ["name=plain"] and parse(["d=1,2,"])[0] == {"d": Choice(("1", "2"))}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a=2..1", "low < high"),
        ("a=x..1", "low < high"),
        ("a=1..", "low < high"),
        ("a=0..1.0:log", "starts above 0"),
        ("a=1..9:log", "List them"),
        ("a=1.0..9:ln", "got `:ln`"),
        ("a", "key=value"),
        ("b=2", "given twice"),
        ("c=1,2", "given twice"),
    ],
)
def test_what_cannot_be_searched_is_rejected(word, message):
    with pytest.raises(ConfigError, match=message):
        parse(["b=1", "c=0..1", word])


def test_one_value_for_several_settings():
    space, _ = parse(["loss.a+loss.b=0.1..0.9"])
    (first, second) = words_of(random_trial(space, 0, 1))
    assert first.startswith("loss.a=") and second == first.replace("loss.a", "loss.b")
