"""Groups: k-means with a chosen number, and density methods that leave loose rows out."""

import numpy as np
import pytest
from sklearn.cluster import DBSCAN

from vicinal.errors import ConfigError, DataError
from vicinal.search.clusters import chosen_count, cluster, dbscan
from vicinal.search.pairs import close_pairs


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
    found = cluster(rows[:140], groups=6)
    assert found.sizes == [40, 30, 25, 20, 15, 10] and found.loose == 0
    np.testing.assert_array_equal(found.assigned, labels[:140])
    members = found.members(3)
    mean = rows[labels == 3].mean(axis=0)
    far = np.linalg.norm(rows[members] - mean, axis=1)
    assert (np.diff(far) >= 0).all()
    np.testing.assert_allclose(found.spread[members], far, rtol=1e-5)


def test_the_number_is_chosen_by_silhouette_and_what_was_tried_is_told(bunches):
    rows, _ = bunches
    count, words = chosen_count(rows[:140], seed=0)
    assert count == 6 and "6: 0.9" in words and "on 140 rows" in words
    found = cluster(rows[:140])
    assert len(found.sizes) == 6 and "tried 2: " in found.words


def test_hdbscan_leaves_loose_rows_out(bunches):
    rows, labels = bunches
    found = cluster(rows, method="hdbscan")
    np.testing.assert_array_equal(found.assigned, labels)
    assert found.loose == 6 and np.isnan(found.spread[-6:]).all() and np.isfinite(found.spread[:-6]).all()


def test_dbscan_groups_what_its_distance_links(bunches):
    rows, labels = bunches
    found = cluster(rows, method="dbscan", distance=2.0, least=4)
    np.testing.assert_array_equal(found.assigned, labels)


@pytest.mark.parametrize("least", [2, 4, 8])
@pytest.mark.parametrize("distance", [0.15, 0.3, 0.5])
def test_dbscan_agrees_with_scikit_learn_on_core_rows_and_noise(least, distance):
    rows = np.random.default_rng(1).random(size=(300, 2)).astype(np.float32) * 3
    ours = dbscan(len(rows), close_pairs(rows, distance), least)
    theirs = DBSCAN(eps=distance, min_samples=least).fit(rows.astype(np.float64))
    np.testing.assert_array_equal(ours < 0, theirs.labels_ < 0)
    core = theirs.core_sample_indices_
    together = ours[core][:, None] == ours[core]
    np.testing.assert_array_equal(together, theirs.labels_[core][:, None] == theirs.labels_[core])


def test_a_border_row_joins_its_nearest_core_row_whatever_the_order():
    step = 0.05 * np.arange(6)
    line = np.concatenate([step, [1.17], 2 + step])[:, None].astype(np.float32)  # row 6 is near both, nearer the second
    for order in (np.arange(13), np.arange(13)[::-1]):
        found = dbscan(13, close_pairs(line[order], 0.95), 6)
        place = {int(row): found[position] for position, row in enumerate(order)}
        assert place[6] == place[7] == place[12] != place[0] == place[5] and -1 not in found


def test_cosine_groups_directions():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [12, 8])
    rows = np.eye(2)[labels] * rng.uniform(0.1, 50, size=(20, 1)) + 1e-3
    found = cluster(rows.astype(np.float32), groups=2, metric="cosine")
    np.testing.assert_array_equal(found.assigned, labels)


def test_equal_rows_make_one_group_and_no_error():
    rows = np.ones((12, 3), dtype=np.float32)
    assert sum(cluster(rows, groups=3).sizes) == sum(cluster(rows).sizes) == 12
    assert cluster(rows, method="dbscan", distance=0.0).sizes == [12]
    assert cluster(rows[:4], method="hdbscan").loose == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "kmeans"}, "did you mean 'k-means'"),
        ({"groups": 0}, "1 to 146 groups, but 0"),
        ({"groups": 147}, "1 to 146 groups, but 147"),
        ({"method": "hdbscan", "groups": 3}, "finds the number of groups itself"),
        ({"method": "dbscan"}, "needs a distance"),
        ({"distance": 1.0}, r"k-means came with distance = 1\.0"),
        ({"method": "hdbscan", "least": 1}, "at least 2 members, but 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message, bunches):
    with pytest.raises(ConfigError, match=message):
        cluster(bunches[0], **settings)


def test_too_few_and_too_many(bunches, monkeypatch):
    with pytest.raises(DataError, match="at least 4 things, but the collection has 3"):
        cluster(bunches[0][:3])
    monkeypatch.setattr("vicinal.search.clusters._HDBSCAN_ROWS", 100)
    with pytest.raises(ConfigError, match="at most 100, but there are 146"):
        cluster(bunches[0], method="hdbscan")
