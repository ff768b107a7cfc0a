"""The result table as people read it: per cent, one decimal, the trained model's order, the gain."""

from vicinal.reports import table
from vicinal.reports.tables import changes


def results(**rows):
    return {"rows": [{"name": name.replace("_", " "), "metrics": metrics} for name, metrics in rows.items()]}


def test_metrics_follow_the_trained_model_and_then_what_only_others_have():
    made = table(results(untrained={"nmi": 0.5, "ami": 0.1, "recall@1": 0.2}, trained={"recall@1": 0.9, "nmi": 0.8}))
    assert [row[0] for row in made.rows] == ["Recall@1", "NMI", "AMI"]


def test_models_keep_their_order_and_every_row_is_as_long_as_the_header():
    made = table(
        results(raw_pixels={"recall@1": 0.4}, untrained={"recall@1": 0.5}, trained={"recall@1": 0.75, "f1": 1})
    )
    assert made.columns == ("metric", "raw pixels", "untrained", "trained", "gain")
    assert made.rows == (("Recall@1", "40.0", "50.0", "75.0", "+25.0"), ("F1", "–", "–", "100.0", "–"))


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
