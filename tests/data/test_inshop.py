"""In-Shop Clothes Retrieval in its own layout."""

import pytest

from vicinal.data import DATASETS, Folder, InShop, check, inshop, open_path
from vicinal.data.published import Part
from vicinal.data.splits import overlapping_classes
from vicinal.description import build, describe
from vicinal.errors import DataError

ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/WOMEN/Tees/id_00000001/01_1_front.jpg", "id_00000001", "query"),
    ("img/WOMEN/Tees/id_00000001/01_2_side.jpg", "id_00000001", "gallery"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "gallery"),
    ("img/MEN/Denim/id_00000080/01_3_back.jpg", "id_00000080", "query"),
]


def write_list(folder, rows=ROWS):
    folder.mkdir(exist_ok=True)
    lines = [f"{path:<75} {item:<20} {status}" for path, item, status in rows]
    (folder / "list_eval_partition.txt").write_text(
        "\n".join([str(len(rows)), "image_name item_id evaluation_status", *lines]) + "\n"
    )


@pytest.fixture
def small(monkeypatch):
    published = {name: Part(images=2, classes=count) for name, count in (("train", 1), ("query", 2), ("gallery", 2))}
    monkeypatch.setattr(inshop, "_PUBLISHED", published)


@pytest.fixture
def root(write_pictures, small):
    root = write_pictures(*(path for path, _, _ in ROWS))
    write_list(root)
    return root


def test_query_and_gallery_are_roles_in_the_test_split(root):
    records = InShop(str(root)).load()
    assert records.name == "In-Shop" and records.classes == ("id_00000001", "id_00000002", "id_00000080")
    assert records.labels.tolist() == [1, 1, 0, 0, 2, 2]
    assert records.splits.tolist() == ["train"] * 2 + ["test"] * 4
    assert records.columns["role"].tolist() == [0, 0, 1, 2, 2, 1]
    assert records.part("test").columns["role"].tolist() == [1, 2, 2, 1]
    assert not overlapping_classes(records) and records.source.read(5).size == (12, 10)


def test_the_layout_of_the_whole_benchmark_is_known_too(write_pictures, small):
    root = write_pictures(*(f"Img/{path}" for path, _, _ in ROWS))
    write_list(root / "Eval")
    assert open_path(root) == InShop(str(root))
    records = InShop(str(root)).load()
    assert len(records) == 6 and records.source.name(0) == ROWS[0][0] and records.source.read(0).size == (12, 10)


def test_missing_images_are_refused_or_left_out(root):
    (root / ROWS[3][0]).unlink()
    with pytest.raises(DataError, match=f"6 images, of which 1 are missing in .*: {ROWS[3][0]}"):
        InShop(str(root)).load()
    records = InShop(str(root), missing="use").load()
    assert records.name == "In-Shop (1 gallery images, not 2; 1 gallery classes, not 2)"
    assert records.columns["role"].tolist() == [0, 0, 1, 2, 1]
    assert check(InShop(str(root))).unreadable[0][0] == ROWS[3][0]


def test_another_number_of_images_is_refused(root, monkeypatch):
    monkeypatch.undo()
    message = (
        "2 train images, not 25,882; 1 train classes, not 3,997; 2 query images, not 14,218; "
        "2 query classes, not 3,985; 2 gallery images, not 12,612; 2 gallery classes, not 3,985"
    )
    with pytest.raises(DataError, match=message):
        InShop(str(root)).load()


def test_an_unknown_status_is_refused_with_its_line(root):
    write_list(root, [*ROWS[:5], (*ROWS[5][:2], "qurey")])
    with pytest.raises(DataError, match=r"list_eval_partition\.txt, line 8: unknown evaluation status 'qurey'; did"):
        InShop(str(root)).load()


def test_the_path_tells_it_from_another_set_with_such_a_list(root):
    assert open_path(root) == InShop(str(root))
    (root / "list_eval_partition.txt").write_text("000001.jpg 0\n000002.jpg 1\n")  # CelebA's
    assert open_path(root) == Folder(str(root))
    with pytest.raises(DataError, match="line 2: the header should be `image_name item_id evaluation_status`"):
        InShop(str(root)).load()


def test_the_set_is_rebuilt_from_its_description():
    assert build(describe(InShop(missing="use")), DATASETS) == InShop(missing="use")
