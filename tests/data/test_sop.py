"""Stanford Online Products in its own layout."""

import pytest

from vicinal.data import DATASETS, StanfordOnlineProducts, check, open_path, sop
from vicinal.data.published import Part
from vicinal.description import build, describe
from vicinal.errors import DataError

HEADER = "image_id class_id super_class_id path\n"
TRAIN = ["1 1 1 bicycle_final/11_0.JPG", "2 1 1 bicycle_final/11_1.JPG", "3 2 12 toaster_final/12_0.JPG"]
TEST = ["4 3 1 bicycle_final/13_0.JPG", "5 3 1 bicycle_final/13_1.JPG"]


@pytest.fixture
def root(write_pictures, monkeypatch):
    monkeypatch.setattr(sop, "_PUBLISHED", {"train": Part(images=3, classes=2), "test": Part(images=2, classes=1)})
    root = write_pictures(*(line.split()[-1].replace(".JPG", ".jpg") for line in TRAIN + TEST))
    for line in TRAIN + TEST:
        path = root / line.split()[-1]
        path.with_suffix(".jpg").rename(path)
    (root / "Ebay_train.txt").write_text(HEADER + "\n".join(TRAIN) + "\n")
    (root / "Ebay_test.txt").write_text(HEADER + "\n".join(TEST) + "\n")
    return root


def test_the_two_lists_are_the_splits(root):
    records = StanfordOnlineProducts(str(root)).load()
    assert records.name == "Stanford Online Products"
    assert records.classes == ("bicycle/1", "toaster/2", "bicycle/3")
    assert records.labels.tolist() == [0, 0, 1, 2, 2]
    assert records.splits.tolist() == ["train"] * 3 + ["test"] * 2
    assert records.columns["super_class"].tolist() == [1, 1, 12, 1, 1]
    assert records.source.name(4) == "bicycle_final/13_1.JPG" and records.source.read(4).size == (12, 10)


def test_missing_images_are_refused_or_left_out(root):
    (root / "toaster_final" / "12_0.JPG").unlink()
    with pytest.raises(DataError, match=r"5 images, of which 1 are missing in .*: toaster_final/12_0\.JPG"):
        StanfordOnlineProducts(str(root)).load()
    records = StanfordOnlineProducts(str(root), missing="use").load()
    assert records.name == "Stanford Online Products (2 train images, not 3; 1 train classes, not 2)"
    assert records.columns["super_class"].tolist() == [1, 1, 1, 1]
    assert check(StanfordOnlineProducts(str(root))).unreadable[0][0] == "toaster_final/12_0.JPG"


def test_another_number_of_images_is_refused(root, monkeypatch):
    monkeypatch.undo()
    message = "3 train images, not 59,551; 2 train classes, not 11,318; 2 test images, not 60,502; 1 test .* 11,316"
    with pytest.raises(DataError, match=message):
        StanfordOnlineProducts(str(root)).load()


def test_damaged_lists_are_refused_with_their_place(root):
    (root / "Ebay_test.txt").write_text(HEADER + TEST[0] + "\n5 x 1 bicycle_final/13_1.JPG\n")
    with pytest.raises(DataError, match=r"Ebay_test\.txt, line 3: `class_id` should be a whole number, but 'x' came"):
        StanfordOnlineProducts(str(root)).load()
    (root / "Ebay_test.txt").write_text("\n".join(TEST))
    with pytest.raises(DataError, match=r"Ebay_test\.txt, line 1: the header should be `image_id class_id"):
        StanfordOnlineProducts(str(root)).load()
    (root / "Ebay_test.txt").unlink()
    with pytest.raises(DataError, match=r"Ebay_test\.txt was to be read, but does not exist"):
        StanfordOnlineProducts(str(root)).load()


def test_the_path_tells_it(root):
    assert open_path(root) == StanfordOnlineProducts(str(root))


def test_the_set_is_rebuilt_from_its_description():
    assert build(describe(StanfordOnlineProducts(missing="use")), DATASETS) == StanfordOnlineProducts(missing="use")
