"""Published benchmarks: their lists, and the counts they are held to."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from vicinal.data import CUB, Cars196, InShop, StanfordOnlineProducts, check, open_path
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError

HALVES = {"train": (4, 2), "test": (4, 2)}
BIRDS = ("001.Albatross", "002.Auk", "003.Wren", "004.Yellowthroat")
BIRD_PATHS = [f"{name}/{name[4:]}_{number}.jpg" for name in BIRDS for number in range(2)]
CARS = ("AM General Hummer SUV", "Acura RL Sedan", "Ram C/V Cargo Van", "smart fortwo")
CAR_PATHS = [f"car_ims/{number:06d}.jpg" for number in range(1, 9)]
EBAY = "image_id class_id super_class_id path\n"
EBAY_TRAIN = """1 1 1 bicycle_final/11_0.JPG
2 1 1 bicycle_final/11_1.JPG
3 2 12 toaster_final/12_0.JPG
"""
EBAY_TEST = """4 3 1 bicycle_final/13_0.JPG
5 3 1 bicycle_final/13_1.JPG
"""
CLOTHES = """6
image_name item_id evaluation_status
img/WOMEN/Dresses/id_00000002/02_1_front.jpg    id_00000002   train
img/WOMEN/Dresses/id_00000002/02_2_side.jpg     id_00000002   train
img/WOMEN/Tees/id_00000001/01_1_front.jpg       id_00000001   query
img/WOMEN/Tees/id_00000001/01_2_side.jpg        id_00000001   gallery
img/MEN/Denim/id_00000080/01_1_front.jpg        id_00000080   gallery
img/MEN/Denim/id_00000080/01_3_back.jpg         id_00000080   query
"""


def annotations():
    """As Cars196 has them: a row of structs with the box first, class and a split of its own
    last."""
    fields = ("relative_im_path", "bbox_x1", "class", "test")
    rows = np.zeros((1, 8), dtype=[(name, object) for name in fields])
    for row, path in enumerate(CAR_PATHS):
        rows[0, row] = (path, np.uint8(7), np.uint8(1 + row // 2), np.uint8(row % 2))
    file = io.BytesIO()
    savemat(file, {"annotations": rows, "class_names": np.array([CARS], dtype=object)})
    return file.getvalue()


SETS = {  # counts of a small set, its lists, and how they differ from the published ones
    CUB: (
        HALVES,
        {
            "images.txt": "".join(f"{row} {path}\n" for row, path in enumerate(BIRD_PATHS, 1)),
            "image_class_labels.txt": "",
        },
        "are {'train': (8, 4), 'test': (0, 0)}, not {'train': (5864, 100)",
    ),
    Cars196: (
        HALVES,
        {"cars_annos.mat": annotations()},
        "are {'train': (8, 4), 'test': (0, 0)}, not {'train': (8054, 98)",
    ),
    StanfordOnlineProducts: (
        {"train": (3, 2), "test": (2, 1)},
        {"Ebay_train.txt": EBAY + EBAY_TRAIN, "Ebay_test.txt": EBAY + EBAY_TEST},
        "are {'train': (3, 2), 'test': (2, 1)}, not {'train': (59551, 11318)",
    ),
    InShop: (
        {"train": (2, 1), "query": (2, 2), "gallery": (2, 2)},
        {"list_eval_partition.txt": CLOTHES},
        "are {'train': (2, 1), 'query': (2, 2), 'gallery': (2, 2)}, not {'train': (25882, 3997)",
    ),
}


def put(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def lay(tmp_path, monkeypatch):
    """``lay(kind)``: a small set of that kind, with its pictures, and its folder."""

    def make(kind):
        counts, lists, _ = SETS[kind]
        monkeypatch.setattr(kind, "counts", counts)
        for name, content in lists.items():
            put(tmp_path / name, content)
        data = kind(str(tmp_path))
        picture = io.BytesIO()
        Image.new("RGB", (12, 10)).save(picture, "JPEG")
        source = data.load(strict=False).source
        for path in source.paths:
            put(source.root / path, picture.getvalue())
        return data, tmp_path

    return make


@pytest.mark.parametrize("kind", SETS)
def test_every_set_is_held_to_its_lists_and_counts(kind, lay, monkeypatch):
    data, root = lay(kind)
    assert open_path(root) == data
    source = data.load().source
    (source.root / source.paths[3]).unlink()
    with pytest.raises(DataError, match=rf"1 of . listed .* are missing .*\({source.paths[3]}"):
        data.load()
    assert check(data).findings["unusable"][0].startswith(source.paths[3])
    monkeypatch.undo()
    with pytest.raises(DataError, match=re.escape(SETS[kind][2])):
        data.load(strict=False)


def test_the_first_species_train_and_the_others_test(lay):
    records = lay(CUB)[0].load()
    assert records.name == "CUB-200-2011" and records.classes == BIRDS
    assert records.names() == BIRD_PATHS
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and records.labels.dtype == np.int64
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.source.read(7).size == (12, 10)


@pytest.mark.parametrize("line", ["9 005.Owl", "x 005.Owl/1.jpg", "9"])
def test_a_damaged_list_is_an_error_with_its_line(lay, line):
    data, root = lay(CUB)
    with (root / "images.txt").open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(DataError, match=r"images\.txt, line 10: .* is no row of the list"):
        data.load()


@pytest.mark.data
def test_the_real_birds_have_the_published_counts(data_root):
    records = CUB().load()  # which counts them
    assert not overlapping_classes(records)
    for row in range(0, 11788, 97):
        assert records.source.name(row).startswith(records.title(row))
    assert records.classes[100] == "101.White_Pelican" and min(records.source.read(11787).size) > 0
    assert open_path("$VICINAL_DATA/CUB_200_2011") == CUB()


def test_damaged_annotations_are_an_error(lay):
    data, root = lay(Cars196)
    path = root / "cars_annos.mat"
    for content in (b"", annotations()[:300]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cars_annos\.mat is not readable as MATLAB"):
            data.load()
    savemat(path, {"something": 1})
    with pytest.raises(DataError, match="KeyError: 'class_names'"):
        data.load()


def test_the_two_lists_of_products_are_the_splits(lay):
    records = lay(StanfordOnlineProducts)[0].load()
    assert records.name == "Stanford Online Products"
    assert records.classes == ("bicycle/1", "toaster/2", "bicycle/3")
    assert records.labels.tolist() == [0, 0, 1, 2, 2]
    assert records.splits.tolist() == ["train"] * 3 + ["test"] * 2
    assert records.columns["super_class"].tolist() == [1, 1, 12, 1, 1]
    assert records.source.name(4) == "bicycle_final/13_1.JPG"


def test_query_and_gallery_are_roles_in_the_test_split(lay):
    records = lay(InShop)[0].load()
    assert records.name == "In-Shop"
    assert records.classes == ("id_00000002", "id_00000001", "id_00000080")
    assert records.splits.tolist() == ["train"] * 2 + ["test"] * 4
    assert records.columns["role"].tolist() == [0, 0, 1, 2, 2, 1]
    assert not overlapping_classes(records)


def test_the_layout_of_all_of_deepfashion_is_known_too(lay):
    data, root = lay(InShop)
    (root / "Img").mkdir()
    (root / "img").rename(root / "Img/img")
    (root / "Eval").mkdir()
    (root / "list_eval_partition.txt").rename(root / "Eval/list_eval_partition.txt")
    assert open_path(root) == data
    records = data.load()
    assert len(records) == 6 and records.source.read(0).size == (12, 10)
