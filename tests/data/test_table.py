"""Tables of image paths, with labels and in pairs of views."""

from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from vicinal.arguments import build, describe
from vicinal.data import DATASETS, CrossView, Table, hold_out, open_path
from vicinal.data.records import GALLERY, QUERY
from vicinal.data.splits import overlapping_classes
from vicinal.errors import DataError


@pytest.fixture
def table(write_pictures):
    """``table(text)`` is a table beside the pictures 0.png to 3.png."""
    root = write_pictures("0.png", "1.png", "2.png", "3.png")

    def make(text: str, **settings):
        (root / "list.csv").write_text(text)
        return Table(str(root / "list.csv"), **settings)

    return make


def test_rows_splits_and_numbers_are_those_of_the_table(table):
    text = "path,label,split,angle,note\n0.png,x,train,0.5,a\n1.png,10,val,1,b\n2.png,9,test,2,c\n3.png,x,test,3,d\n"
    records = table(text).load()
    assert records.name == "list"
    assert records.source.paths == ["0.png", "1.png", "2.png", "3.png"]
    assert [records.classes[label] for label in records.labels] == ["x", "10", "9", "x"]
    assert records.splits.tolist() == ["train", "validation", "test", "test"]
    assert records.columns.keys() == {"angle"} and records.columns["angle"].tolist() == [
        0.5,
        1,
        2,
        3,
    ]
    assert records.source.read(3).size == (12, 10)
    assert overlapping_classes(records) == ("x",)


def test_without_splits_classes_are_divided(table):
    records = table("path,label\n0.png,2\n1.png,10\n2.png,2\n3.png,10\n", order="sorted").load()
    assert records.classes == ("2", "10")
    assert records.splits.tolist() == ["train", "test", "train", "test"]


def test_images_may_lie_elsewhere(table, tmp_path):
    (tmp_path / "lists").mkdir()
    moved = tmp_path / "lists" / "list.csv"
    moved.write_text(f"path,label\n0.png,a\n{tmp_path / '1.png'},b\n")
    records = Table(str(moved), images=str(tmp_path)).load()
    assert records.source.read(0).size == records.source.read(1).size == (12, 10)


def test_parquet_is_a_table_too(table, tmp_path):
    path = tmp_path / "list.parquet"
    rows = {
        "path": ["0.png", "1.png"],
        "label": [2, 10],
        "split": ["train", "test"],
        "camera": [1, 2],
    }
    pyarrow.parquet.write_table(pyarrow.table(rows), path)
    records = Table(str(path)).load()
    assert records.classes == ("2", "10") and records.columns["camera"].tolist() == [1, 2]


def test_a_parquet_text_that_is_not_utf8_is_named_with_its_file(tmp_path):
    path = tmp_path / "list.parquet"
    texts = pyarrow.array([b"caf\xe9.png", b"b.png"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"path": texts, "label": ["a", "b"]}), path)
    with pytest.raises(DataError, match=r"list\.parquet is not readable as Parquet"):
        Table(str(path)).load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n", "has a header but no rows"),
        ("path;label\n0.png;a\n", "should be several columns. Separate them by commas"),
        ("file,label\n0.png,a\n", "unknown column 'path'"),
        ("path,label\n0.png,\n", "line 2: `label` is empty"),
        ("path,label\n,a\n", "line 2: `path` is empty"),
        (
            "path,label,split\n0.png,a,train\n1.png,b,trian\n",
            "line 3: unknown split 'trian'; did you mean 'train'",
        ),
        ("path,label,split\n0.png,a,train\n1.png,b,\n", "line 3: `split` is empty"),
        ("path,label\n0.png,a\n1.png,b\n0.png,b\n", "line 4: 0.png is already in line 2"),
    ],
)
def test_bad_tables_are_rejected_with_their_line(text, message, table):
    with pytest.raises(DataError, match=message):
        table(text).load()


def test_missing_images_are_counted_and_the_first_are_named(table):
    rows = "".join(f"lost/{number}.png,{number % 2}\n" for number in range(5))
    dataset = table(f"path,label\n0.png,a\n{rows}")
    with pytest.raises(
        DataError, match=r"do not exist, 5 in its 6 rows: line 3, `path`: .*lost/0.png; .*; \.\.\."
    ):
        dataset.load()
    assert len(dataset.load(strict=False)) == 6


def test_the_set_is_rebuilt_from_its_description():
    dataset = Table("$VICINAL_DATA/list.csv", images="pictures", test=0.2)
    assert build(describe(dataset), DATASETS) == dataset


def test_a_table_of_numbers_is_a_vector_for_each_row(table):
    text = "length,kind,note,width,split\n1,a,x,0.5,train\n2,b,y,1,test\n"
    path = table(text).path
    with pytest.raises(DataError, match=r"'label'\. Known: kind, note, split.*data\.label=COLUMN"):
        open_path(path).load()
    records = replace(open_path(path), label="kind").load()
    assert records.source.kind == "features" and records.source.read(1).tolist() == [2.0, 1.0]
    assert records.classes == ("a", "b") and records.splits.tolist() == ["train", "test"]
    with pytest.raises(DataError, match=r"line 3: `length` must be a number, got 'x'"):
        open_path(table("length,label\n1,a\nx,b\n").path).load()


def test_pictures_and_classes_may_have_other_columns(table):
    path = table("file,kind\n0.png,a\n1.png,b\n").path
    records = replace(open_path(path, image="file"), label="kind").load()
    assert records.source.paths == ["0.png", "1.png"] and records.classes == ("a", "b")
    with pytest.raises(
        DataError, match=r"no column of numbers among file, kind.*data\.path=COLUMN"
    ):
        open_path(path).load()


NAMES = "abcdef"


@pytest.fixture
def root(write_pictures):
    """Six places, seen from the ground and from the air; ``a`` twice from the ground."""
    return write_pictures(
        *(f"{view}/{name}.png" for view in ("ground", "air") for name in NAMES), "ground/a2.png"
    )


def write_table(root, rows, header="query_path,gallery_path", name="pairs.csv"):
    (root / name).write_text("\n".join([header, *rows]) + "\n")
    return str(root / name)


@pytest.fixture
def path(root):
    rows = [f"ground/{name}.png,air/{name}.png" for name in reversed(NAMES)]
    return write_table(root, [*rows, "ground/a2.png,air/a.png"])


def test_queries_come_first_and_a_gallery_image_is_a_class(path):
    records = CrossView(path).load()
    assert records.classes == tuple(f"air/{name}.png" for name in NAMES)
    assert records.columns["role"].tolist() == [QUERY] * 7 + [GALLERY] * 6
    assert [records.source.name(row) for row in (0, 6, 7, 12)] == [
        "ground/f.png",
        "ground/a2.png",
        "air/a.png",
        "air/f.png",
    ]
    assert records.labels.tolist() == [5, 4, 3, 2, 1, 0, 0, 0, 1, 2, 3, 4, 5]
    assert records.source.read(12).size == (12, 10) and not records.columns["angle"].any()


def test_both_views_of_a_place_are_in_one_part_and_stay_together(path):
    records = CrossView(path, seed=3).load()
    assert sorted(np.unique(records.splits).tolist()) == ["test", "train"]
    held = hold_out(CrossView(path, test=0.0).load(), 0.5, 0)
    assert sorted(np.unique(held.splits).tolist()) == ["train", "validation"]
    for part in (records, held):
        assert all(len(set(part.splits[part.labels == label])) == 1 for label in range(6))


def test_an_angle_is_that_of_the_pair(root):
    rows = [
        "ground/a.png,air/a.png,30",
        "ground/a2.png,air/a.png,-90.5",
        "ground/b.png,air/b.png,0",
    ]
    records = CrossView(write_table(root, rows, "query_path,gallery_path,angle")).load()
    angle, labels = records.columns["angle"], records.labels
    found = [angle[3 + labels[query]] - angle[query] for query in range(3)]
    assert found == [30.0, -90.5, 0.0]


def test_splits_may_be_given(root):
    rows = [
        "ground/a.png,air/a.png,train",
        "ground/b.png,air/b.png,val",
        "ground/c.png,air/c.png,test",
    ]
    records = CrossView(write_table(root, rows, "query_path,gallery_path,split")).load()
    assert records.splits.tolist() == ["train", "validation", "test"] * 2


def test_a_path_tells_that_it_is_a_table_of_pairs(root, path):
    assert open_path(path) == CrossView(path)
    pairs = {
        "query_path": ["ground/a.png", "ground/b.png"],
        "gallery_path": ["air/a.png", "air/b.png"],
    }
    pyarrow.parquet.write_table(pyarrow.table(pairs), root / "pairs.parquet")
    assert open_path(root / "pairs.parquet") == CrossView(str(root / "pairs.parquet"))
    assert len(CrossView(str(root / "pairs.parquet")).load()) == 4
    other = write_table(root, ["ground/a.png,x"], "path,query_path_of", "other.csv")
    assert open_path(other) == Table(other)


def test_is_described_and_rebuilt(path):
    assert build(describe(CrossView(path, test=0.25)), DATASETS) == CrossView(path, test=0.25)


def test_one_column_of_the_two_is_enough_to_tell_a_table_of_pairs(root):
    """So that a misspelt one is named as what it should be, not taken for a table of labels."""
    for header, lacking in (
        ("query_pth,gallery_path", "query_path"),
        ("query_path,air", "gallery_path"),
    ):
        table = open_path(write_table(root, ["ground/a.png,air/a.png"], header, "x.csv"))
        with pytest.raises(DataError, match=rf"x\.csv: unknown column '{lacking}'"):
            table.load()


TURNED = "query_path,gallery_path,angle"


@pytest.mark.parametrize(("cell", "row"), [("north", 0), ("", 2), ("nan", 1), ("inf", 2)])
def test_an_angle_that_is_no_number_is_named_with_its_row(root, cell, row):
    rows = [
        f"ground/{name}.png,air/{name}.png,{cell if place == row else 15}"
        for place, name in enumerate("abc")
    ]
    with pytest.raises(
        DataError, match=rf"x\.csv, line {row + 2}: `angle` must be a number, got '{cell}'"
    ):
        CrossView(write_table(root, rows, TURNED, "x.csv")).load()


def test_an_empty_angle_of_a_parquet_file_is_named_with_its_row(root):
    pairs = {
        "query_path": ["ground/a.png", "ground/b.png"],
        "gallery_path": ["air/a.png", "air/b.png"],
    }
    pyarrow.parquet.write_table(pyarrow.table(pairs | {"angle": [3.0, None]}), root / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet, row 1: `angle` must be a number, got None"):
        CrossView(str(root / "x.parquet")).load()


def test_a_query_has_one_gallery_image(root):
    rows = ["ground/a.png,air/a.png", "ground/b.png,air/b.png"]
    with pytest.raises(
        DataError, match=r"line 4: ground/a\.png is already in line 2\. List it once"
    ):
        CrossView(write_table(root, [*rows, rows[0]], name="x.csv")).load()


def test_what_is_wrong_is_named(root, path):
    with pytest.raises(
        DataError, match=r"1 in its 1 rows: line 2, `gallery_path`: .*nowhere\.png\. Relative paths"
    ):
        CrossView(write_table(root, ["ground/a.png,nowhere.png"], name="x.csv")).load()
    assert (
        len(
            CrossView(write_table(root, ["ground/a.png,nowhere.png"], name="x.csv"), test=0).load(
                strict=False
            )
        )
        == 2
    )
    rows = ["ground/a.png,air/a.png,train", "ground/a2.png,air/a.png,test"]
    with pytest.raises(
        DataError, match=r"line 3: air/a\.png is a test image here and a train image in line 2"
    ):
        CrossView(write_table(root, rows, "query_path,gallery_path,split", "x.csv")).load()
    with pytest.raises(DataError, match="no rows"):
        CrossView(write_table(root, [], name="x.csv")).load()
