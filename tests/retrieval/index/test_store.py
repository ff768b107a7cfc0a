"""Attributes by which a search is narrowed."""

import numpy as np

from vicinal.retrieval.index.store import Attributes

ROWS = [{"label": "a", "sex": "f"}, {"label": "b"}, {"label": "a"}, {"label": "b", "sex": "f"}]


def test_rows_have_all_that_is_asked_for():
    attributes = Attributes(ROWS)
    assert attributes.rows({"label": "a"}).tolist() == [0, 2]
    assert attributes.rows({"label": "b", "sex": "f"}).tolist() == [3]


def test_a_missing_attribute_equals_no_value():
    assert Attributes(ROWS).rows({"sex": ""}).tolist() == []


def test_values_are_counted():
    assert Attributes(ROWS).values("label") == {"a": 2, "b": 2} and Attributes(ROWS).values("colour") == {}


def test_no_rows_have_no_attributes():
    nothing = Attributes([])
    assert nothing.names == [] and np.array_equal(nothing.rows({"label": "a"}), [])
