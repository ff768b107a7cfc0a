"""Facts of a run as text, whatever JSON a run or its successor holds there."""

import pytest

from vicinal.reports import page as facts


def test_settings_are_grouped_by_slot_and_objects_in_them_read_as_calls():
    loss = {"name": "triplet", "margin": 0.2, "distance": {"class": "Cosine", "scale": 2.0}}
    assert facts.settings(
        {"config": {"slots": {"loss": loss, "sizes": [3, 4], "mirror": False}}}
    ) == [
        ("", [("sizes", "3, 4"), ("mirror", "False")]),
        ("loss", [("name", "triplet"), ("margin", "0.2"), ("distance", "Cosine(scale=2)")]),
    ]


@pytest.mark.parametrize(
    ("info", "heading"),
    [
        ({}, ("A run", "")),
        (
            {"name": "run-1", "config": {"preset": "glyphs", "title": "A docstring."}},
            ("run-1", "preset glyphs"),
        ),
        (
            {
                "data": {"name": "flowers"},
                "config": {"preset": "images", "slots": {"loss": {"name": "triplet"}}},
            },
            ("flowers", "triplet, preset images"),
        ),
    ],
)
def test_the_heading_is_the_data_and_the_experiment(info, heading):
    assert facts.heading(info) == heading


def test_data_counts_have_a_line_per_part():
    data = {"name": "glyphs", "description": None, "counts": {"train": {"records": 5200}}}
    assert facts.data({"data": data}) == [
        ("name", "glyphs"),
        ("train", "records=5200"),
    ]


def test_an_empty_run_has_no_facts():
    assert facts.settings({}) == facts.data({}) == facts.environment({}) == []


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({}, "The run has not recorded its progress; this page shows what it has written so far."),
        ({"state": "running"}, "Running; what follows is what it had written by then."),
        (
            {"state": "failed", "epoch": 2, "step": 1200, "seconds": 61.0},
            "Failed in epoch 2 after 1,200 steps and 0:01:01 h; what follows",
        ),
        ({"state": "finished", "step": 0, "seconds": 0.1}, "Finished."),
    ],
)
def test_the_state_is_a_sentence(status, sentence):
    assert facts.state(status).startswith(sentence)
