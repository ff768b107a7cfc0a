"""Groups: k-means with a chosen number, and a density method that leaves loose rows out."""

import numpy as np
import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.clusters import Grouping, cluster, cluster_contents
from vicinal.retrieval.duplicates import close_pairs, duplicate_contents, group_pairs


@pytest.fixture
def bunches():
    """Six bunches of falling size in the plane of eight dimensions, and six rows far from all."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), [40, 30, 25, 20, 15, 10])
    rows = 10 * np.eye(8)[labels] + 0.3 * rng.normal(size=(len(labels), 8))
    far = 40 * rng.normal(size=(6, 8))
    return np.concatenate([rows, far]).astype(np.float32), np.concatenate([labels, np.full(6, -1)])


def test_k_means_numbers_groups_by_size_and_puts_the_typical_first(bunches):
    rows, labels = bunches
    found = cluster(rows[:140])  # the number is chosen by silhouette
    assert found.sizes == [40, 30, 25, 20, 15, 10] and found.loose == 0
    assert "6: 0.9" in found.words and "on 140 rows" in found.words
    np.testing.assert_array_equal(found.assigned, labels[:140])
    members = found.members(3)
    far = np.linalg.norm(rows[members] - rows[labels == 3].mean(axis=0), axis=1)
    assert (np.diff(far) >= 0).all()
    np.testing.assert_allclose(found.spread[members], far, rtol=1e-5)


def test_hdbscan_leaves_loose_rows_out(bunches):
    rows, labels = bunches
    found = cluster(rows, method="hdbscan")
    np.testing.assert_array_equal(found.assigned, labels)
    assert found.loose == 6
    np.testing.assert_array_equal(np.isnan(found.spread), labels < 0)


def test_equal_rows_make_one_group_and_no_error():
    rows = np.ones((12, 3), dtype=np.float32)
    assert sum(cluster(rows, groups=3).sizes) == sum(cluster(rows).sizes) == 12
    assert cluster(rows[:4], method="hdbscan").loose == 4


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (146, {"method": "kmeans"}, "did you mean 'k-means'"),
        (146, {"groups": 147}, "1 to 146 groups; got --groups 147"),
        (146, {"method": "hdbscan", "groups": 3}, "finds the number of groups itself"),
        (146, {"method": "hdbscan", "least": 1}, "at least 2 members; got --least 1"),
        (3, {}, "at least 4 items; the collection has 3"),
    ],
)
def test_settings_that_cannot_work_are_rejected(rows, settings, message, bunches):
    with pytest.raises((ConfigError, DataError), match=message):
        cluster(bunches[0][:rows], **settings)


def test_groups_say_what_they_mostly_are_and_loose_things_come_last(collect):
    snapshot = collect(np.zeros((6, 2)), ["a", "a", "b", "c", "c", None])
    spread = np.array([0.3, 0.1, 0.2, 0.1, 0.2, np.nan], dtype=np.float32)
    found = cluster_contents(snapshot, Grouping(np.array([0, 0, 0, 1, 1, -1]), spread, "By hand."))
    titles = [group.title for group in found.groups]
    assert titles == [
        "Group 1: 3 items, mostly a (2 of 3)",
        "Group 2: 2 items, c",
        "In no group: 1 items",
    ]
    assert [list(group.rows) for group in found.groups] == [[1, 2, 0], [3, 4], [5]]
    assert [group.number for group in found.groups] == [1, 2, 0]
    facts = dict(found.facts)
    assert facts["groups"] == "2" and facts["in none"] == "1"
    assert 0 < float(facts["NMI with the labels"]) < 1


def test_without_labels_nothing_is_said_of_them(collect):
    snapshot = collect(np.zeros((4, 2)), [None, "a", "a", None])
    grouping = Grouping(np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.float32), "")
    assert "NMI with the labels" not in dict(cluster_contents(snapshot, grouping).facts)


def test_duplicates_with_different_labels_are_marked(collect):
    snapshot = collect([[0.0], [0.1], [5.0], [5.2], [9.0]], ["a", "a", "a", "<b>", "c"])
    page = duplicate_contents(snapshot, group_pairs(5, close_pairs(snapshot.vectors(), 1)), 1, "")
    assert [group.warning for group in page.groups] == ["", "labels differ: <b>, a"]
    assert dict(page.facts)["groups with different labels"] == "1"
