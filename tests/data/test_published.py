"""Published benchmarks: their lists, and the counts they are held to."""

from dataclasses import dataclass, replace

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
from vicinal.data.published import Published, read_list
from vicinal.data.records import ImageFiles, Records
from vicinal.data.splits import overlapping_classes
from vicinal.errors import ConfigError, DataError

HALVES = {"train": (4, 2), "test": (4, 2)}
LETTERS = [f"{name}/{number}.png" for name in "abcd" for number in range(2)]


@dataclass(frozen=True)
class Letters(Published):
    """Classes a and b train, c and d test."""

    counts = HALVES
    paths: tuple[str, ...] = tuple(LETTERS)

    def _listed(self, root):
        labels = np.array(["abcd".index(path[0]) for path in self.paths], dtype=int)
        splits = np.where(labels < 2, "train", "test")
        roles = np.where(labels < 2, 0, 1 + np.arange(len(labels)) % 2)
        return Records(
            "Letters", ImageFiles(root, self.paths), labels, tuple("abcd"), splits, {"role": roles}
        )


@pytest.fixture
def letters(write_pictures):
    return Letters(str(write_pictures(*LETTERS)))


@pytest.fixture
def root(letters, tmp_path):
    return tmp_path


def test_missing_images_are_an_error_with_their_number_and_the_first_few(letters, root):
    for path in LETTERS[:4]:
        (root / path).unlink()
    (root / "a").rmdir()  # a folder that is not there at all
    message = (
        r"4 of 8 listed images are missing \(a/0\.png, a/1\.png, b/0\.png, \.\.\.\)\. "
        r"Restore it, or set"
    )
    with pytest.raises(DataError, match=message):
        letters.load()
    assert len(letters.load(strict=False)) == 8  # a check names each


def test_on_request_the_rest_is_used_and_its_name_tells_the_difference(letters, root):
    for path in ("a/0.png", "a/1.png", "c/1.png"):
        (root / path).unlink()
    records = replace(letters, missing="use").load()
    assert records.name == (
        "Letters (2 train images, not 4; 1 train classes, not 2; 3 test images, not 4)"
    )
    names = [records.source.name(row) for row in range(len(records))]
    assert names == ["b/0.png", "b/1.png", "c/0.png", "d/0.png", "d/1.png"]
    assert records.classes == tuple("abcd") and records.labels.tolist() == [1, 1, 2, 3, 3]


def test_lists_that_differ_are_an_error_or_told(letters):
    short = replace(letters, paths=tuple(LETTERS[:-1]))
    message = r"is not the published set: 3 test images, not 4\. Restore it, or set"
    with pytest.raises(DataError, match=message):
        short.load(strict=False)
    assert replace(short, missing="use").load().name == "Letters (3 test images, not 4)"


@pytest.mark.parametrize("paths", [tuple(LETTERS), ()])
def test_a_set_without_any_image_is_always_an_error(paths, tmp_path):
    with pytest.raises(DataError, match="nothing of Letters is in"):
        Letters(str(tmp_path), "use", paths=paths).load()


def test_parts_may_be_finer_than_splits(letters, root, monkeypatch):
    monkeypatch.setattr(Letters, "counts", {"train": (4, 2), "query": (2, 2), "gallery": (2, 2)})
    assert letters.load().name == "Letters"
    (root / "c/1.png").unlink()
    assert (
        replace(letters, missing="use").load().name
        == "Letters (1 gallery images, not 2; 1 gallery classes, not 2)"
    )


def test_another_word_is_an_error(letters):
    with pytest.raises(
        ConfigError, match=r"data\.missing: unknown value 'used'; did you mean 'use'"
    ):
        replace(letters, missing="used").load()


def test_a_list_has_fields_between_spaces_and_lines_to_name(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("2\nname   item\na.png     id_1  \n\nb.png  id_2\n")
    columns = read_list(path, ("name", "item"), header=2)
    assert columns.cells == {"name": ["a.png", "b.png"], "item": ["id_1", "id_2"]}
    assert columns.place(1).endswith("list.txt, line 5")
    for text in ("x 1\ny\n", "x 1\nx 1 2\n"):
        path.write_text(text)
        with pytest.raises(DataError, match=r"line 2: expected 2 fields \(name, number\), got"):
            read_list(path, ("name", "number"))


# -- the sets in small, in their own layout
# ---------------------------------------------------------------------------

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
    (root / "classes.txt").write_text(
        "".join(f"{number} {name}\n" for number, name in enumerate(BIRDS, 1))
    )
    (root / "images.txt").write_text(
        "".join(f"{number} {path}\n" for number, path in enumerate(BIRD_PATHS, 1))
    )
    (root / "image_class_labels.txt").write_text(
        "".join(f"{row + 1} {row // 2 + 1}\n" for row in range(8))
    )
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
    root = write_pictures(
        *(line.split()[-1].replace(".JPG", ".jpg") for line in EBAY_TRAIN + EBAY_TEST)
    )
    for line in EBAY_TRAIN + EBAY_TEST:
        path = root / line.split()[-1]
        path.with_suffix(".jpg").rename(path)
    (root / "Ebay_train.txt").write_text(EBAY + "\n".join(EBAY_TRAIN) + "\n")
    (root / "Ebay_test.txt").write_text(EBAY + "\n".join(EBAY_TEST) + "\n")
    return root


@pytest.fixture
def clothes(write_pictures, monkeypatch):
    monkeypatch.setattr(InShop, "counts", {"train": (2, 1), "query": (2, 2), "gallery": (2, 2)})
    root = write_pictures(*(path for path, _, _ in CLOTHES))
    write_partition(root)
    return root


SETS = {
    # kind: fixture, a picture, where it is named, the name without it, what is not published in the
    # small set
    CUB: (
        "birds",
        f"images/{BIRD_PATHS[5]}",
        BIRD_PATHS[5],
        "CUB-200-2011 (3 test images, not 4)",
        "8 train images, not 5,864; 4 train classes, not 100; 0 test images, not 5,9",
    ),
    Cars196: (
        "cars",
        CAR_PATHS[0],
        CAR_PATHS[0],
        "Cars196 (3 train images, not 4)",
        "8 train images, not 8,054; 4 train classes, not 98; 0 test images, not 8,131",
    ),
    StanfordOnlineProducts: (
        "products",
        "toaster_final/12_0.JPG",
        "toaster_final/12_0.JPG",
        "Stanford Online Products (2 train images, not 3; 1 train classes, not 2)",
        "3 train images, not 59,551; 2 train classes, not 11,318; 2 test images, not 60,502; 1 "
        "test .* 11,316",
    ),
    InShop: (
        "clothes",
        CLOTHES[3][0],
        CLOTHES[3][0],
        "In-Shop (1 gallery images, not 2; 1 gallery classes, not 2)",
        "2 train images, not 25,882; 1 train classes, not 3,997; 2 query images, not 14,218; "
        "2 query classes, not 3,985; 2 gallery images, not 12,612; 2 gallery classes, not 3,985",
    ),
}


@pytest.mark.parametrize("kind", SETS)
def test_every_set_is_held_to_its_lists_and_counts(kind, request, monkeypatch):
    fixture, file, name, without, unpublished = SETS[kind]
    root = request.getfixturevalue(fixture)
    assert open_path(root) == kind(str(root))
    (root / file).unlink()
    with pytest.raises(DataError, match=rf"1 of . listed images are missing \({name}"):
        kind(str(root)).load()
    assert kind(str(root), missing="use").load().name == without
    assert check(kind(str(root))).unreadable[0][0] == name
    monkeypatch.undo()
    with pytest.raises(DataError, match=unpublished):
        kind(str(root)).load()


def test_the_first_species_train_and_the_others_test(birds):
    records = CUB(str(birds)).load()
    assert records.name == "CUB-200-2011" and records.classes == BIRDS
    assert [records.source.name(row) for row in range(8)] == BIRD_PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and records.labels.dtype == np.int64
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


def test_classes_are_found_by_the_images_number(birds):
    path = birds / "image_class_labels.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[::-1]))
    assert CUB(str(birds)).load().labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for wrong, got in ((["8 5", *lines[:-1]], 5), (lines[:-1], 0)):
        path.write_text("\n".join(wrong))
        message = rf"images\.txt, line 8: classes are numbered from 1 to 4, got {got}"
        with pytest.raises(DataError, match=message):
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


def test_the_first_models_of_cars_train_and_the_others_test(cars):
    records = Cars196(str(cars)).load()
    assert records.name == "Cars196" and records.classes == CARS
    assert [records.source.name(row) for row in range(8)] == CAR_PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and records.labels.dtype == np.int64
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


@pytest.mark.parametrize("number", [0, 5])
def test_a_class_without_a_name_is_an_error(number, cars):
    write_annotations(cars, numbers=(1, 1, 2, 2, 3, 3, 4, number))
    with pytest.raises(
        DataError,
        match=rf"image car_ims/000008\.jpg: classes are numbered from 1 to 4, got {number}",
    ):
        Cars196(str(cars)).load()


def test_damaged_annotations_are_an_error(cars):
    whole = (cars / "cars_annos.mat").read_bytes()
    for content in (b"", b"not a matrix", whole[: len(whole) // 2]):
        (cars / "cars_annos.mat").write_bytes(content)
        with pytest.raises(
            DataError, match=r"cars_annos\.mat is not readable as MATLAB annotations"
        ):
            Cars196(str(cars)).load()
    savemat(cars / "cars_annos.mat", {"something": 1})
    with pytest.raises(DataError, match="KeyError: 'annotations'"):
        Cars196(str(cars)).load()
    (cars / "cars_annos.mat").unlink()
    with pytest.raises(DataError, match=r"cars_annos\.mat does not exist"):
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
    (products / "toaster_final" / "12_0.JPG").unlink()
    rest = StanfordOnlineProducts(str(products), missing="use").load()
    assert rest.columns["super_class"].tolist() == [1, 1, 1, 1]


def test_damaged_lists_of_products_are_an_error_with_their_place(products):
    (products / "Ebay_test.txt").write_text(
        EBAY + EBAY_TEST[0] + "\n5 x 1 bicycle_final/13_1.JPG\n"
    )
    with pytest.raises(DataError, match=r"Ebay_test\.txt, line 3: `class_id` must be a number"):
        StanfordOnlineProducts(str(products)).load()
    (products / "Ebay_test.txt").unlink()
    with pytest.raises(DataError, match=r"Ebay_test\.txt does not exist"):
        StanfordOnlineProducts(str(products)).load()


def test_query_and_gallery_are_roles_in_the_test_split(clothes):
    records = InShop(str(clothes)).load()
    assert records.name == "In-Shop" and records.classes == (
        "id_00000001",
        "id_00000002",
        "id_00000080",
    )
    assert records.labels.tolist() == [1, 1, 0, 0, 2, 2]
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


def test_an_unknown_status_is_an_error_with_its_line(clothes):
    write_partition(clothes, [*CLOTHES[:5], (*CLOTHES[5][:2], "qurey")])
    with pytest.raises(
        DataError, match=r"list_eval_partition\.txt, line 8: unknown evaluation status 'qurey'; did"
    ):
        InShop(str(clothes)).load()
