"""Cars196 in its own layout."""

import numpy as np
import pytest
from scipy.io import savemat

from vicinal.data import DATASETS, Cars196, cars, check, open_path
from vicinal.data.published import Part
from vicinal.description import build, describe
from vicinal.errors import DataError

CLASSES = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Ram C/V Cargo Van", "smart fortwo 2012")
PATHS = [f"car_ims/{number:06d}.jpg" for number in range(1, 9)]


def write_annotations(root, paths=PATHS, numbers=(1, 1, 2, 2, 3, 3, 4, 4), classes=CLASSES):
    """As the set has them: a row of structs with the box first, class and a split of its own last."""
    annotations = np.zeros(
        (1, len(paths)), dtype=[(name, object) for name in ("relative_im_path", "bbox_x1", "class", "test")]
    )
    for row, (path, number) in enumerate(zip(paths, numbers, strict=True)):
        annotations[0, row] = (path, np.uint8(7), np.uint8(number), np.uint8(row % 2))
    savemat(root / "cars_annos.mat", {"annotations": annotations, "class_names": np.array([classes], dtype=object)})


@pytest.fixture
def root(write_pictures, monkeypatch):
    monkeypatch.setattr(cars, "_PUBLISHED", {"train": Part(images=4, classes=2), "test": Part(images=4, classes=2)})
    root = write_pictures(*PATHS)
    write_annotations(root)
    return root


def test_the_first_classes_train_and_the_others_test(root):
    records = Cars196(str(root)).load()
    assert records.name == "Cars196" and records.classes == CLASSES
    assert [records.source.name(row) for row in range(8)] == PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and records.labels.dtype == np.int64
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


def test_missing_images_are_refused_or_left_out(root):
    (root / PATHS[0]).unlink()
    with pytest.raises(DataError, match=f"of which 1 are missing in .*: {PATHS[0]}"):
        Cars196(str(root)).load()
    assert Cars196(str(root), missing="use").load().name == "Cars196 (3 train images, not 4)"
    assert check(Cars196(str(root))).unreadable[0][0] == PATHS[0]


def test_another_number_of_images_is_refused(root, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(DataError, match="8 train images, not 8,054; 4 train classes, not 98; 0 test images, not 8,131"):
        Cars196(str(root)).load()


def test_one_image_is_a_set_too(root):
    write_annotations(root, PATHS[:1], [1], CLASSES[:1])
    records = Cars196(str(root), missing="use").load()
    assert len(records) == 1 and records.classes == CLASSES[:1]


def test_a_class_without_a_name_is_refused(root):
    write_annotations(root, numbers=(1, 1, 2, 2, 3, 3, 4, 5))
    with pytest.raises(DataError, match=r"image car_ims/000008\.jpg: classes are numbered from 1 to 4, but 5 came"):
        Cars196(str(root)).load()


def test_damaged_annotations_are_refused(root):
    whole = (root / "cars_annos.mat").read_bytes()
    for content in (b"", b"not a matrix", whole[: len(whole) // 2]):
        (root / "cars_annos.mat").write_bytes(content)
        with pytest.raises(DataError, match=r"cars_annos\.mat is not readable as MATLAB annotations"):
            Cars196(str(root)).load()
    savemat(root / "cars_annos.mat", {"something": 1})
    with pytest.raises(DataError, match="KeyError: 'annotations'"):
        Cars196(str(root)).load()
    (root / "cars_annos.mat").unlink()
    with pytest.raises(DataError, match="does not exist"):
        Cars196(str(root)).load()


def test_the_path_tells_it(root):
    assert open_path(root) == Cars196(str(root))


def test_the_set_is_rebuilt_from_its_description():
    assert build(describe(Cars196(missing="use")), DATASETS) == Cars196(missing="use")
