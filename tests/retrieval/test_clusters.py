"""Groups by k-means, whose number may be chosen."""

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.retrieval.clusters import cluster, cluster_page

SIZES = [40, 30, 25, 20, 15, 10]


@pytest.fixture
def bunches():
    """Six bunches of falling size in eight dimensions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), SIZES)
    rows = 10 * np.eye(8)[labels] + 0.3 * rng.normal(size=(len(labels), 8))
    return rows.astype(np.float32), labels


def test_k_means_orders_groups_by_size_and_puts_the_typical_first(bunches):
    rows, labels = bunches
    found, words = cluster(rows)  # the number is chosen by silhouette
    assert "6: 0.9" in words and "on 140 rows" in words
    assert [len(members) for members, _ in found] == SIZES
    for group, (members, spread) in enumerate(found):
        assert set(labels[members]) == {group} and (np.diff(spread) >= 0).all()
        far = np.linalg.norm(rows[members] - rows[labels == group].mean(axis=0), axis=1)
        np.testing.assert_allclose(spread, far, rtol=1e-5)


def test_equal_rows_make_one_group_and_no_error():
    rows = np.ones((12, 3), dtype=np.float32)
    for groups in (3, None):
        assert sum(len(members) for members, _ in cluster(rows, groups)[0]) == 12


def test_too_few_items_for_a_choice_are_rejected(bunches):
    with pytest.raises(DataError, match="at least 4 items; the collection has 3"):
        cluster(bunches[0][:3])


def test_groups_say_what_they_mostly_are(collect):
    line = np.array([[0], [0.1], [0.2], [9], [9.1], [9.3]])
    page = cluster_page(collect(line, ["a", "a", "b", "c", "c", None]), 2)
    titles = [group.title for group in page.groups]
    assert titles == ["Group 1: 3 items, mostly a (2 of 3)", "Group 2: 3 items, mostly c (2 of 2)"]
    assert page.groups[0].rows == [1, 0, 2]
    assert 0 < float(dict(page.facts)["NMI with the labels"]) < 1
    unlabeled = cluster_page(collect(line, [None, *"aa", None, None, None]), 2)
    assert "NMI with the labels" not in dict(unlabeled.facts)
