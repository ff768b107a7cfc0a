"""The result table as people read it: per cent, one decimal, the trained model's order, the
gain."""

from vicinal.reports.tables import changes, headline, table, warning


def results(**rows):
    return {
        "rows": [
            {"name": name.replace("_", " "), "metrics": metrics} for name, metrics in rows.items()
        ]
    }


def test_metrics_follow_the_trained_model_and_then_what_only_others_have():
    made = table(
        results(
            untrained={"nmi": 0.5, "ami": 0.1, "recall@1": 0.2},
            trained={"recall@1": 0.9, "nmi": 0.8},
        )
    )
    assert [row[0] for row in made.rows] == ["Recall@1", "NMI", "AMI"]


def test_models_keep_their_order_and_every_row_is_as_long_as_the_header():
    made = table(
        results(
            raw_pixels={"recall@1": 0.4},
            untrained={"recall@1": 0.5},
            trained={"recall@1": 0.75, "f1": 1},
        )
    )
    assert made.columns == ("metric", "raw pixels", "untrained", "trained", "gain")
    assert made.rows == (
        ("Recall@1", "40.0", "50.0", "75.0", "+25.0"),
        ("F1", "–", "–", "100.0", "–"),
    )


def test_the_gain_is_that_of_the_printed_numbers():
    made = table(results(untrained={"recall@1": 0.4704}, trained={"recall@1": 0.9126}))
    assert made.rows == (("Recall@1", "47.0", "91.3", "+44.3"),)


def test_a_loss_has_a_minus_and_no_change_has_no_sign():
    made = table(results(untrained={"a": 0.5, "b": 0.5}, trained={"a": 0.4, "b": 0.5004}))
    assert [row[-1] for row in made.rows] == ["−10.0", "0.0"]


def test_without_an_untrained_row_there_is_no_gain():
    assert table(results(trained={"recall@1": 0.5})).columns == ("metric", "trained")


def test_without_a_trained_row_the_first_order_counts():
    made = table(results(untrained={"nmi": 0.5, "recall@1": 0.2}))
    assert [row[0] for row in made.rows] == ["NMI", "Recall@1"]


def test_changes_stand_row_by_row_beside_the_table():
    found = changes(results(untrained={"b": 0.2}, trained={"a": 0.9, "b": 0.7}))
    assert found == [None, (0.2, 0.7)]


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


def test_a_gain_at_the_first_place_does_not_hide_a_loss_at_the_eighth():
    rows = {
        "untrained": {"recall@1": 0.06, "recall@8": 0.66},
        "trained": {"recall@1": 0.22, "recall@8": 0.44},
    }
    said = warning(results(**rows))
    assert said == "below the untrained model: Recall@8 66.0 → 44.0, −22.0 points"


def test_the_head_start_is_a_row_of_its_own_and_its_share_of_the_gain_is_named():
    rows = {
        "untrained": {"map@r": 0.3},
        "head_start": {"map@r": 0.346},
        "trained": {"map@r": 0.362},
    }
    assert table(results(**rows)).columns == (
        "metric",
        "untrained",
        "head start",
        "trained",
        "gain",
    )
    assert (
        headline(results(**rows))["head"] == "+4.6" and headline(results(**rows))["gain"] == "+6.2"
    )


def test_the_spread_over_seeds_of_k_means_is_shown():
    found = results(trained={"recall@1": 0.5, "nmi": 0.884})
    found["rows"][0]["spread"] = {"nmi": 0.004}
    assert table(found).rows == (("Recall@1", "50.0"), ("NMI", "88.4 ± 0.4"))
