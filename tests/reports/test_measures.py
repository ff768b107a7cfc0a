"""Diagnostics with their captions; what a run did not measure is left out."""

from vicinal.reports.series import measures, spectrum_chart


def test_measures_are_shares_of_the_largest():
    [ratio] = measures(
        [{"name": "train", "intra_inter_ratio": 0.2}, {"name": "test", "intra_inter_ratio": 0.4}]
    )
    assert [(bar["text"], bar["part"]) for bar in ratio["bars"]] == [("0.200", 0.5), ("0.400", 1.0)]


def test_a_value_that_is_missing_or_zero_everywhere_does_no_harm():
    [decay] = measures(
        [{"name": "train", "spectral_decay": 0.0}, {"name": "test", "spectral_decay": None}]
    )
    assert [(bar["name"], bar["part"]) for bar in decay["bars"]] == [("train", 0.0)]


def test_nothing_measured_is_nothing_shown():
    assert measures([]) == []
    assert spectrum_chart([{"name": "train"}]) is None


def test_a_spectrum_ends_where_it_reaches_zero():
    chart = spectrum_chart([{"name": "train", "spectrum": [0.75, 0.25, 0.0]}])
    assert chart.lines["train"].steps == [1, 2]
    assert chart.lines["train"].mean == [0.75, 0.25]
