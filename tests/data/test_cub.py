"""CUB-200-2011 in its own layout."""

import numpy as np
import pytest

from vicinal.data import CUB, DATASETS, check, cub, open_path
from vicinal.data.published import Part
from vicinal.data.splits import overlapping_classes
from vicinal.description import build, describe
from vicinal.errors import DataError

CLASSES = ("001.Albatross", "002.Auk", "003.Wren", "004.Yellowthroat")
PATHS = [f"{name}/{name[4:]}_{number}.jpg" for name in CLASSES for number in range(2)]


@pytest.fixture
def root(write_pictures, monkeypatch):
    """Two classes to train on, two to test on, two pictures each."""
    monkeypatch.setattr(cub, "_PUBLISHED", {"train": Part(images=4, classes=2), "test": Part(images=4, classes=2)})
    root = write_pictures(*(f"images/{path}" for path in PATHS))
    (root / "classes.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(CLASSES, 1)))
    (root / "images.txt").write_text("".join(f"{number} {path}\n" for number, path in enumerate(PATHS, 1)))
    (root / "image_class_labels.txt").write_text("".join(f"{row + 1} {row // 2 + 1}\n" for row in range(8)))
    return root


def test_the_first_classes_train_and_the_others_test(root):
    records = CUB(str(root)).load()
    assert records.name == "CUB-200-2011" and records.classes == CLASSES
    assert [records.source.name(row) for row in range(8)] == PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


def test_classes_are_found_by_the_images_number(root):
    lines = (root / "image_class_labels.txt").read_text().splitlines()
    (root / "image_class_labels.txt").write_text("\n".join(lines[::-1]))
    assert CUB(str(root)).load().labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    (root / "image_class_labels.txt").write_text("\n".join(lines[:-1]))
    with pytest.raises(DataError, match=r"images\.txt, line 8: image 8 has no class in .*image_class_labels\.txt"):
        CUB(str(root)).load()


def test_missing_images_are_refused_or_left_out(root):
    (root / "images" / PATHS[5]).unlink()
    with pytest.raises(DataError, match=f"of which 1 are missing in .*images: {PATHS[5]}"):
        CUB(str(root)).load()
    records = CUB(str(root), missing="use").load()
    assert len(records) == 7 and records.name == "CUB-200-2011 (3 test images, not 4)"
    assert check(CUB(str(root))).unreadable[0][0] == PATHS[5]


def test_another_number_of_images_is_refused(root, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(DataError, match="8 train images, not 5,864; 4 train classes, not 100; 0 test images, not 5,9"):
        CUB(str(root)).load()


def test_lists_that_do_not_exist_are_named(tmp_path):
    with pytest.raises(DataError, match=r"classes\.txt was to be read, but does not exist"):
        CUB(str(tmp_path)).load()


def test_the_path_tells_it(root):
    assert open_path(root) == CUB(str(root))
    (root / "image_class_labels.txt").unlink()
    assert not CUB.lies_in(root)


def test_the_set_is_rebuilt_from_its_description():
    assert build(describe(CUB(missing="use")), DATASETS) == CUB(missing="use")


@pytest.mark.data
def test_the_real_set_has_the_published_counts(data_root):
    records = CUB().load()
    assert records.name == "CUB-200-2011"
    assert (records.splits == "train").sum() == 5864 and (records.splits == "test").sum() == 5924
    assert not overlapping_classes(records) and len(np.unique(records.labels)) == 200
    assert all(records.source.name(row).startswith(records.classes[records.labels[row]]) for row in range(0, 11788, 97))
    assert records.classes[100] == "101.White_Pelican" and min(records.source.read(11787).size) > 0
    assert open_path("$VICINAL_DATA/CUB_200_2011") == CUB()
