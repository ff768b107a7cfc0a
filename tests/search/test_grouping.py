"""What was found, in the words and the order of table and page."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.run_directory import RunDirectory
from vicinal.search.clusters import Grouping
from vicinal.search.collection import CollectionDirectory, Item
from vicinal.search.duplicates import near_duplicates
from vicinal.search.generations import publish
from vicinal.search.grouping import cluster_contents, cluster_snapshot, duplicate_contents
from vicinal.search.nearness import Nearness


def made(tmp_path, vectors, labels):
    items = [Item(id=place, path=f"{place}.png", label=label) for place, label in enumerate(labels)]
    publish(tmp_path / "collection", items, np.asarray(vectors, dtype=np.float32), dim=np.shape(vectors)[1])
    return CollectionDirectory.open(tmp_path / "collection").snapshot()


def test_groups_say_what_they_mostly_are_and_loose_things_come_last(tmp_path):
    snapshot = made(tmp_path, np.zeros((6, 2)), ["a", "a", "b", "c", "c", None])
    spread = np.array([0.3, 0.1, 0.2, 0.1, 0.2, np.nan], dtype=np.float32)
    found = cluster_contents(snapshot, Grouping(np.array([0, 0, 0, 1, 1, -1]), spread, "By hand."), ["By hand."])
    titles = [group.title for group in found.groups]
    assert titles == ["Group 1: 3 things, mostly a (2 of 3)", "Group 2: 2 things, c", "In no group: 1 things"]
    assert [list(group.rows) for group in found.groups] == [[1, 2, 0], [3, 4], [5]]
    assert [group.number for group in found.groups] == [1, 2, 0]
    facts = dict(found.facts)
    assert facts["groups"] == "2" and facts["in none"] == "1" and 0 < float(facts["NMI with the labels"]) < 1


def test_without_labels_nothing_is_said_of_them(tmp_path):
    snapshot = made(tmp_path, np.zeros((4, 2)), [None, "a", "a", None])
    grouping = Grouping(np.array([0, 0, 1, 1]), np.zeros(4, dtype=np.float32), "")
    assert "NMI with the labels" not in dict(cluster_contents(snapshot, grouping, []).facts)


def test_duplicates_with_different_labels_are_marked_and_false_ones_counted(tmp_path):
    line = [[0.0], [0.1], [5.0], [5.2], [9.0]]
    snapshot = made(tmp_path, line, ["a", "a", "a", "<b>", "c"])
    found = near_duplicates(snapshot.vectors(), 1.0)
    page = duplicate_contents(snapshot, found, Nearness(1.0, "Calibrated.", 0.1))
    assert [group.warning for group in page.groups] == ["", "labels differ: <b>, a"]
    assert "10 pairs were compared and 2 lie within the distance; at that rate up to about 1" in page.lead[1]
    assert dict(page.facts)["groups with different labels"] == "1" and "Nothing was removed." in page.lead[-1]
    assert len(duplicate_contents(snapshot, found, Nearness(1.0, "Named.", None)).lead) == 2


def test_dbscan_takes_the_distance_and_other_methods_no_rate(tmp_path):
    snapshot = made(tmp_path, [[0.0], [0.1], [5.0], [5.2], [9.0]], [None] * 5)
    run = RunDirectory(tmp_path / "run")
    found, words = cluster_snapshot(run, snapshot, method="dbscan", distance=1.0, least=2)
    assert found.assigned.tolist() == [0, 0, 1, 1, -1] and len(words) == 2
    with pytest.raises(ConfigError, match="but the method is hdbscan"):
        cluster_snapshot(run, snapshot, method="hdbscan", rate=0.1)
