"""Near duplicates are the connected groups of near pairs."""

import numpy as np

from vicinal.search.duplicates import near_duplicates


def test_groups_are_linked_through_others_and_the_surest_comes_first():
    line = np.array([0.0, 0.9, 1.8, 10.0, 10.1, 20.0, 30.0, 30.5])[:, None].astype(np.float32)
    found = near_duplicates(line, 1.0)
    assert [group.rows for group in found.groups] == [(3, 4), (6, 7), (0, 1, 2)]
    np.testing.assert_allclose(found.groups[0].nearest, [0.1, 0.1], atol=1e-6)
    np.testing.assert_allclose(found.groups[2].nearest, [0.9, 0.9, 0.9], atol=1e-6)
    assert found.rows == 7 and found.pairs == 4 and found.compared == 28


def test_nothing_near_gives_no_group():
    assert near_duplicates(np.eye(4, dtype=np.float32), 0.5).groups == ()
    assert near_duplicates(np.empty((0, 3), dtype=np.float32), 0.5).groups == ()


def test_groups_whose_labels_differ_are_told():
    line = np.array([0.0, 0.1, 5.0, 5.2, 9.0, 9.3])[:, None].astype(np.float32)
    found = near_duplicates(line, 1.0)
    assert found.disagreeing(["a", "a", "a", "b", None, "c"]) == [1]


def test_planted_copies_are_found_among_many():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 32)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    copies = rows[:40] + 1e-3 * rng.normal(size=(40, 32)).astype(np.float32)
    found = near_duplicates(np.concatenate([rows, copies]), 0.05)
    assert {group.rows for group in found.groups} == {(place, 500 + place) for place in range(40)}
