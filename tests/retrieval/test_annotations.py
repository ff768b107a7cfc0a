"""What is decided is kept and undone change by change; a decision belongs to the picture, not to
its name."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.retrieval.annotations import NAME, Annotation, Annotations
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.generations import publish
from vicinal.retrieval.store import Item


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


def test_tags_labels_and_drops_are_read_by_another_reader(annotations, snapshot, tmp_path):
    annotations.change(snapshot, [1, 2], add=["blurred", "Ünïcode 🐦"])
    annotations.change(snapshot, [2], label="wren", remove=["blurred"])
    odd = "a/b \n,\udce9.png"  # a path that is in no collection, and no text
    annotations.change(snapshot, [odd], drop=True)
    known = {
        1: Annotation(tags=("blurred", "Ünïcode 🐦")),
        2: Annotation("wren", tags=("Ünïcode 🐦",)),
        odd: Annotation(dropped=True),
    }
    found = annotations.read(snapshot)
    assert found.items == known == Annotations(tmp_path).read(snapshot).items
    assert found.labels == {2: "wren"} and annotations.read(snapshot) is found
    annotations.change(snapshot, [1], remove=["blurred", "Ünïcode 🐦"])
    assert 1 not in annotations.read(snapshot).items  # nothing is decided about it any more


def test_a_label_takes_a_drop_back_and_a_drop_a_label(annotations, snapshot):
    annotations.change(snapshot, [1], drop=True)
    annotations.change(snapshot, [1], label="wren")
    assert annotations.read(snapshot).items[1] == Annotation("wren")
    annotations.change(snapshot, [1], drop=True)
    assert annotations.read(snapshot).items[1] == Annotation(dropped=True)


def test_undo_takes_back_one_change_at_a_time_as_a_whole(annotations, snapshot, tmp_path):
    annotations.change(snapshot, [1, 2], label="a")
    annotations.change(snapshot, [2, 3], label="b")
    annotations.undo()
    assert annotations.read(snapshot).labels == {1: "a", 2: "a"}
    annotations.change(snapshot, [4], drop=True)
    for _ in range(3):
        annotations.undo()
    found = annotations.read(snapshot)
    assert found.items == {} == Annotations(tmp_path).read(snapshot).items and not found.can_undo


def test_a_decision_follows_its_picture_and_is_listed_where_that_is_gone(annotations, tmp_path):
    """Decisions were lost with a name, and inherited by another picture that took it."""
    before = generation(tmp_path, {0: "wren", 1: "jay", 2: "owl", 3: "owl"})
    annotations.change(before, [0], label="robin")
    annotations.change(before, [1], drop=True)
    annotations.change(before, [2], add=["night"])
    renamed = generation(tmp_path, {1: "another", 2: "owl", 3: "owl", 4: "wren"})
    found = annotations.read(renamed)
    assert found.items == {4: Annotation("robin"), 2: Annotation(tags=("night",))}
    assert found.lost == {"1.png": Annotation(dropped=True)} and found.can_undo
    annotations.change(renamed, [4], add=["small"])
    back = generation(tmp_path, {0: "wren", 5: "jay"}, {0: "x.png", 5: "y.png"})
    assert annotations.read(back).items == {
        0: Annotation("robin", tags=("small",)),
        5: Annotation(dropped=True),
    }


def test_many_writers_lose_nothing(snapshot, tmp_path):
    def write(place):
        mine = Annotations(tmp_path)  # as another process would open it
        for number in range(5):
            mine.change(snapshot, [5 * place + number], label="a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert set(Annotations(tmp_path).read(snapshot).items) == set(range(20))


@pytest.mark.parametrize(
    "change",
    [
        {"targets": [99], "drop": True},
        {"targets": [1], "label": " a"},
        {"targets": [1], "add": ["a\nb"]},
    ],
)
def test_what_cannot_be_kept_is_rejected_and_writes_nothing(
    annotations, snapshot, tmp_path, change
):
    with pytest.raises(DataError):
        annotations.change(snapshot, **change)
    assert not (tmp_path / NAME).exists()
