"""What is decided is kept and undone change by change; a decision belongs to the picture, not to
its name."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.retrieval.collection import CollectionDirectory, publish
from vicinal.retrieval.decisions import NAME, Annotations
from vicinal.retrieval.items import Item


def generation(folder, digests, paths=None):
    """Publish items of these contents, by id; return the snapshot."""
    named = paths or {id: f"{id}.png" for id in digests}
    items = [Item(id, named[id], "a", digest=digest) for id, digest in sorted(digests.items())]
    publish(folder, items, np.zeros((len(items), 2)), dim=2)
    return CollectionDirectory.open(folder).snapshot()


@pytest.fixture
def snapshot(tmp_path):
    return generation(tmp_path, {id: f"content {id}" for id in range(20)})


@pytest.fixture
def annotations(tmp_path):
    return Annotations(tmp_path)


def test_labels_and_drops_are_read_by_another_reader_and_the_last_counts(
    annotations, snapshot, tmp_path
):
    annotations.change(snapshot, [1, 2], "Ünïcode 🐦")
    annotations.change(snapshot, [2], "")
    odd = "a/b \n,\udce9.png"  # a path that is in no collection, and no text
    annotations.change(snapshot, [odd], "")
    found = annotations.read(snapshot)
    assert found.items == {1: "Ünïcode 🐦", 2: "", odd: ""}
    assert found.items == Annotations(tmp_path).read(snapshot).items
    assert found.snapshot.labels()["Ünïcode 🐦"] == 1 and annotations.read(snapshot) is found


def test_undo_takes_back_one_change_at_a_time_as_a_whole(annotations, snapshot, tmp_path):
    annotations.change(snapshot, [1, 2], "a")
    annotations.change(snapshot, [2, 3], "b")
    annotations.undo()
    assert annotations.read(snapshot).items == {1: "a", 2: "a"}
    for _ in range(2):
        annotations.undo()
    found = annotations.read(snapshot)
    assert found.items == {} == Annotations(tmp_path).read(snapshot).items and not found.can_undo


def test_a_decision_follows_its_picture_and_is_listed_where_that_is_gone(annotations, tmp_path):
    """Decisions were lost with a name, and inherited by another picture that took it."""
    before = generation(tmp_path, {0: "wren", 1: "jay", 2: "owl", 3: "owl"})
    annotations.change(before, [0], "robin")
    annotations.change(before, [1], "")
    annotations.change(before, [2], "hawk")
    renamed = generation(tmp_path, {1: "another", 2: "owl", 3: "owl", 4: "wren"})
    found = annotations.read(renamed)
    assert found.items == {4: "robin", 2: "hawk"} and found.lost == {"1.png": ""}
    back = generation(tmp_path, {0: "wren", 5: "jay"}, {0: "x.png", 5: "y.png"})
    assert annotations.read(back).items == {0: "robin", 5: ""}


def test_many_writers_lose_nothing(snapshot, tmp_path):
    def write(id):  # as another process would
        Annotations(tmp_path).change(snapshot, [id], "a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(20)))
    assert set(Annotations(tmp_path).read(snapshot).items) == set(range(20))


@pytest.mark.parametrize(("target", "label"), [(99, "a"), (1, " a"), (1, "a\nb")])
def test_what_cannot_be_kept_is_rejected_and_writes_nothing(
    annotations, snapshot, tmp_path, target, label
):
    with pytest.raises(DataError):
        annotations.change(snapshot, [target], label)
    assert not (tmp_path / NAME).exists()
