"""The result table as people read it: per cent, one decimal, the trained model's order, the
gain."""

from vicinal.reports.tables import headline, table, warning


def results(**rows):
    return {
        "rows": [
            {"name": name.replace("_", " "), "metrics": metrics} for name, metrics in rows.items()
        ]
    }


def test_the_trained_model_orders_metrics_and_the_gain_is_that_of_the_printed_numbers():
    made = table(
        results(
            raw_pixels={"recall@1": 0.4},
            untrained={"nmi": 0.5, "ami": 0.1, "recall@1": 0.4704, "a": 0.5},
            trained={"recall@1": 0.9126, "nmi": 0.4, "f1": 1, "a": 0.5004},
        )
    )
    assert made.columns == ("metric", "raw pixels", "untrained", "trained", "gain")
    assert made.rows == (
        ("Recall@1", "40.0", "47.0", "91.3", "+44.3"),
        ("NMI", "–", "50.0", "40.0", "−10.0"),
        ("F1", "–", "–", "100.0", "–"),
        ("A", "–", "50.0", "50.0", "0.0"),
        ("AMI", "–", "10.0", "–", "–"),
    )


def test_without_one_of_the_models_there_is_no_gain():
    assert table(results(trained={"recall@1": 0.5})).columns == ("metric", "trained")
    made = table(results(untrained={"nmi": 0.5, "recall@1": 0.2}))
    assert [row[0] for row in made.rows] == ["NMI", "Recall@1"]


def measured(low, high, **rows):
    """Results whose Recall@1 did not change for sure, and whose MAP@R changed by ``low`` to
    ``high``."""
    unsure, moved = (
        {"mean": (a + b) / 2, "low": a, "high": b} for a, b in ((-0.01, 0.026), (low, high))
    )
    return results(**rows) | {"gains": {"untrained": {"recall@1": unsure, "map@r": moved}}}


ROWS = {"untrained": {"recall@1": 0.5, "map@r": 0.3}, "trained": {"recall@1": 0.508, "map@r": 0.36}}


def test_a_gain_carries_its_interval():
    made = table(measured(0.02, 0.1, **ROWS))
    assert [row[-1] for row in made.rows] == ["+0.8 (−1.0 to +2.6)", "+6.0 (+2.0 to +10.0)"]


def test_the_headline_is_the_first_metric_even_where_another_moved():
    found = headline(measured(0.02, 0.1, **ROWS))
    assert (found["metric"], found["interval"]) == ("Recall@1", "(−1.0 to +2.6)")
    assert found["significant"] is False
    assert headline(results(**ROWS))["significant"] is None  # no interval is known
    assert headline(results(trained={"recall@1": 0.5})) is None


def test_a_model_below_the_head_it_started_from_is_named_also_where_it_beats_the_untrained():
    rows = {
        "untrained": {"recall@1": 0.6},
        "head_start": {"recall@1": 0.877, "map@r": 0.516, "recall@8": 0.66},
        "trained": {"recall@1": 0.869, "map@r": 0.52, "recall@8": 0.44},
    }
    moves = "Recall@1 87.7 → 86.9, −0.8 points; Recall@8 66.0 → 44.0, −22.0 points"
    assert warning(results(**rows)) == f"below the head it started from: {moves}"
    rows["trained"]["recall@8"] = 0.65
    assert "Recall@8" not in warning(results(**rows))
    fell = {"mean": -0.01, "low": -0.02, "high": -0.005}
    said = warning(results(**rows) | {"gains": {"head start": {"recall@8": fell}}})
    assert said.endswith("Recall@8 66.0 → 65.0, −1.0 points (−2.0 to −0.5)")


def test_a_score_of_k_means_fell_if_it_fell_by_more_than_its_spreads():
    """ "below the untrained model: AMI 56.3 → 50.9", of four classes, beside ± 31."""
    found = results(untrained={"ami": 0.56}, trained={"ami": 0.5})
    assert "AMI 56.0 → 50.0" in warning(found)
    found["rows"][1]["spread"] = {"ami": 0.31}
    assert not warning(found)


def test_the_share_of_the_head_start_in_the_gain_is_named():
    rows = {
        "untrained": {"map@r": 0.3},
        "head_start": {"map@r": 0.346},
        "trained": {"map@r": 0.362},
    }
    assert (
        headline(results(**rows))["head"] == "+4.6" and headline(results(**rows))["gain"] == "+6.2"
    )


def test_the_spread_over_seeds_of_k_means_is_shown():
    found = results(trained={"recall@1": 0.5, "nmi": 0.884})
    found["rows"][0]["spread"] = {"nmi": 0.004}
    assert table(found).rows == (("Recall@1", "50.0"), ("NMI", "88.4 ± 0.4"))
