"""Scores of training and test classes beside each other; what a run did not measure is left out."""

from vicinal.reports.series import measures


def test_measures_are_shares_of_the_largest():
    rows = [{"name": "train", "recall@1": 0.4}, {"name": "test", "recall@1": 0.2}, {"name": "x"}]
    [ratio] = measures(rows)
    assert [(bar["text"], bar["part"]) for bar in ratio["bars"]] == [("0.400", 1.0), ("0.200", 0.5)]


def test_nothing_measured_is_nothing_shown():
    assert measures([]) == []
    [zero] = measures([{"name": "train", "recall@1": 0.0}, {"name": "test", "recall@1": None}])
    assert [(bar["name"], bar["part"]) for bar in zero["bars"]] == [("train", 0.0)]
