"""Published benchmarks: their lists, and the counts they are held to."""

import re
import shutil

import numpy as np
import pytest
from scipy.io import savemat

from vicinal.data import (
    CUB,
    Cars196,
    InShop,
    StanfordOnlineProducts,
    check,
    open_path,
)
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError

HALVES = {"train": (4, 2), "test": (4, 2)}
BIRDS = ("001.Albatross", "002.Auk", "003.Wren", "004.Yellowthroat")
BIRD_PATHS = [f"{name}/{name[4:]}_{number}.jpg" for name in BIRDS for number in range(2)]
CARS = (
    "AM General Hummer SUV 2000",
    "Acura RL Sedan 2012",
    "Ram C/V Cargo Van",
    "smart fortwo 2012",
)
CAR_PATHS = [f"car_ims/{number:06d}.jpg" for number in range(1, 9)]
EBAY = "image_id class_id super_class_id path\n"
EBAY_TRAIN = [
    "1 1 1 bicycle_final/11_0.JPG",
    "2 1 1 bicycle_final/11_1.JPG",
    "3 2 12 toaster_final/12_0.JPG",
]
EBAY_TEST = ["4 3 1 bicycle_final/13_0.JPG", "5 3 1 bicycle_final/13_1.JPG"]
CLOTHES = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/WOMEN/Tees/id_00000001/01_1_front.jpg", "id_00000001", "query"),
    ("img/WOMEN/Tees/id_00000001/01_2_side.jpg", "id_00000001", "gallery"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "gallery"),
    ("img/MEN/Denim/id_00000080/01_3_back.jpg", "id_00000080", "query"),
]


def write_annotations(root, paths=CAR_PATHS, numbers=(1, 1, 2, 2, 3, 3, 4, 4), classes=CARS):
    """As the set has them: a row of structs with the box first, class and a split of its own
    last."""
    annotations = np.zeros(
        (1, len(paths)),
        dtype=[(name, object) for name in ("relative_im_path", "bbox_x1", "class", "test")],
    )
    for row, (path, number) in enumerate(zip(paths, numbers, strict=True)):
        annotations[0, row] = (path, np.uint8(7), np.uint8(number), np.uint8(row % 2))
    savemat(
        root / "cars_annos.mat",
        {"annotations": annotations, "class_names": np.array([classes], dtype=object)},
    )


def write_partition(folder, rows=CLOTHES):
    folder.mkdir(exist_ok=True)
    lines = [f"{path:<75} {item:<20} {status}" for path, item, status in rows]
    (folder / "list_eval_partition.txt").write_text(
        "\n".join([str(len(rows)), "image_name item_id evaluation_status", *lines]) + "\n"
    )


@pytest.fixture
def birds(write_pictures, monkeypatch):
    """Two classes to train on, two to test on, two pictures each."""
    monkeypatch.setattr(CUB, "counts", HALVES)
    root = write_pictures(*(f"images/{path}" for path in BIRD_PATHS))
    (root / "images.txt").write_text(
        "".join(f"{number} {path}\n" for number, path in enumerate(BIRD_PATHS, 1))
    )
    (root / "image_class_labels.txt").touch()
    return root


@pytest.fixture
def cars(write_pictures, monkeypatch):
    monkeypatch.setattr(Cars196, "counts", HALVES)
    root = write_pictures(*CAR_PATHS)
    write_annotations(root)
    return root


@pytest.fixture
def products(write_pictures, monkeypatch):
    monkeypatch.setattr(StanfordOnlineProducts, "counts", {"train": (3, 2), "test": (2, 1)})
    root = write_pictures("x.jpg")
    for line in EBAY_TRAIN + EBAY_TEST:
        path = root / line.split()[-1]
        path.parent.mkdir(exist_ok=True)
        shutil.copy(root / "x.jpg", path)
    (root / "Ebay_train.txt").write_text(EBAY + "\n".join(EBAY_TRAIN) + "\n")
    (root / "Ebay_test.txt").write_text(EBAY + "\n".join(EBAY_TEST) + "\n")
    return root


@pytest.fixture
def clothes(write_pictures, monkeypatch):
    monkeypatch.setattr(InShop, "counts", {"train": (2, 1), "query": (2, 2), "gallery": (2, 2)})
    root = write_pictures(*(path for path, _, _ in CLOTHES))
    write_partition(root)
    return root


SETS = {  # fixture, a picture, what is not published in the small set
    CUB: ("birds", BIRD_PATHS[5], "'train': (8, 4), 'test': (0, 0)}, not {'train': (5864, 100)"),
    Cars196: ("cars", CAR_PATHS[0], "'train': (8, 4), 'test': (0, 0)}, not {'train': (8054, 98)"),
    StanfordOnlineProducts: (
        "products",
        "toaster_final/12_0.JPG",
        "'train': (3, 2), 'test': (2, 1)}, not {'train': (59551, 11318)",
    ),
    InShop: (
        "clothes",
        CLOTHES[3][0],
        "'train': (2, 1), 'query': (2, 2), 'gallery': (2, 2)}, not {'train': (25882, 3997)",
    ),
}


@pytest.mark.parametrize("kind", SETS)
def test_every_set_is_held_to_its_lists_and_counts(kind, request, monkeypatch):
    fixture, name, unpublished = SETS[kind]
    root = request.getfixturevalue(fixture)
    assert open_path(root) == kind(str(root))
    source = kind(str(root)).load().source
    (source.root / name).unlink()
    with pytest.raises(DataError, match=rf"1 of . listed images of .* are missing .*\({name}"):
        kind(str(root)).load()
    assert check(kind(str(root))).findings["unusable"][0].startswith(name)
    monkeypatch.undo()
    with pytest.raises(DataError, match=re.escape(unpublished)):
        kind(str(root)).load(strict=False)


def test_the_first_species_train_and_the_others_test(birds):
    records = CUB(str(birds)).load()
    assert records.name == "CUB-200-2011" and records.classes == BIRDS
    assert [records.source.name(row) for row in range(8)] == BIRD_PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and records.labels.dtype == np.int64
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


@pytest.mark.parametrize("line", ["9 005.Owl", "x 005.Owl/1.jpg", "9"])
def test_a_damaged_list_is_an_error_with_its_line(birds, line):
    with (birds / "images.txt").open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(DataError, match=r"images\.txt, line 10: .* is no row of the list"):
        CUB(str(birds)).load()


@pytest.mark.data
def test_the_real_birds_have_the_published_counts(data_root):
    records = CUB().load()
    assert records.name == "CUB-200-2011"
    assert (records.splits == "train").sum() == 5864 and (records.splits == "test").sum() == 5924
    assert not overlapping_classes(records) and len(np.unique(records.labels)) == 200
    assert all(
        records.source.name(row).startswith(records.classes[records.labels[row]])
        for row in range(0, 11788, 97)
    )
    assert records.classes[100] == "101.White_Pelican" and min(records.source.read(11787).size) > 0
    assert open_path("$VICINAL_DATA/CUB_200_2011") == CUB()


def test_damaged_annotations_are_an_error(cars):
    path = cars / "cars_annos.mat"
    for content in (b"", path.read_bytes()[:300]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cars_annos\.mat is not readable as MATLAB"):
            Cars196(str(cars)).load()
    savemat(path, {"something": 1})
    with pytest.raises(DataError, match="KeyError: 'class_names'"):
        Cars196(str(cars)).load()


def test_the_two_lists_of_products_are_the_splits(products):
    records = StanfordOnlineProducts(str(products)).load()
    assert records.name == "Stanford Online Products"
    assert records.classes == ("bicycle/1", "toaster/2", "bicycle/3")
    assert records.labels.tolist() == [0, 0, 1, 2, 2]
    assert records.splits.tolist() == ["train"] * 3 + ["test"] * 2
    assert records.columns["super_class"].tolist() == [1, 1, 12, 1, 1]
    assert records.source.name(4) == "bicycle_final/13_1.JPG" and records.source.read(4).size == (
        12,
        10,
    )


def test_query_and_gallery_are_roles_in_the_test_split(clothes):
    records = InShop(str(clothes)).load()
    assert records.name == "In-Shop"
    assert records.classes == ("id_00000002", "id_00000001", "id_00000080")
    assert records.splits.tolist() == ["train"] * 2 + ["test"] * 4
    assert records.columns["role"].tolist() == [0, 0, 1, 2, 2, 1]
    assert records.part("test").columns["role"].tolist() == [1, 2, 2, 1]
    assert not overlapping_classes(records) and records.source.read(5).size == (12, 10)


def test_the_layout_of_all_of_deepfashion_is_known_too(clothes):
    (clothes / "img").rename(clothes / "moved")
    (clothes / "Img").mkdir()
    (clothes / "moved").rename(clothes / "Img" / "img")
    (clothes / "list_eval_partition.txt").unlink()
    write_partition(clothes / "Eval")
    assert open_path(clothes) == InShop(str(clothes))
    records = InShop(str(clothes)).load()
    assert (
        len(records) == 6
        and records.source.name(0) == CLOTHES[0][0]
        and records.source.read(0).size == (12, 10)
    )
