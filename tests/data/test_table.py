"""Tables of image paths."""

import pyarrow
import pyarrow.parquet
import pytest

from vicinal.data import DATASETS
from vicinal.data.splits import overlapping_classes
from vicinal.data.table import Table
from vicinal.description import build, describe
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
    assert records.columns.keys() == {"angle"} and records.columns["angle"].tolist() == [0.5, 1, 2, 3]
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
    rows = {"path": ["0.png", "1.png"], "label": [2, 10], "split": ["train", "test"], "camera": [1, 2]}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)
    records = Table(str(path)).load()
    assert records.classes == ("2", "10") and records.columns["camera"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n", "has a header but no rows"),
        ("path;label\n0.png;a\n", "should be several columns. Separate them by commas"),
        ("file,label\n0.png,a\n", "column `path`.* its columns are file, label"),
        ("path,label\n0.png,\n", "line 2: `label` is empty"),
        ("path,label\n,a\n", "line 2: `path` is empty"),
        ("path,label,split\n0.png,a,train\n1.png,b,trian\n", "line 3: unknown split 'trian'; did you mean 'train'"),
        ("path,label,split\n0.png,a,train\n1.png,b,\n", "line 3: `split` is empty"),
        ("path,label\n0.png,a\n1.png,b\n0.png,b\n", "line 4: 0.png is already in line 2"),
    ],
)
def test_bad_tables_are_refused_with_their_line(text, message, table):
    with pytest.raises(DataError, match=message):
        table(text).load()


def test_missing_images_are_counted_and_the_first_are_named(table):
    rows = "".join(f"lost/{number}.png,{number % 2}\n" for number in range(5))
    dataset = table(f"path,label\n0.png,a\n{rows}")
    with pytest.raises(DataError, match=r"6 images, of which 5 do not exist: line 3: .*lost/0.png; .*; \.\.\."):
        dataset.load()
    assert len(dataset.load(strict=False)) == 6


def test_the_set_is_rebuilt_from_its_description():
    dataset = Table("$VICINAL_DATA/list.csv", images="pictures", test=0.2)
    assert build(describe(dataset), DATASETS) == dataset


def test_a_table_of_measurements_is_told_where_it_belongs(table):
    columns = ",".join(f"feature {number}" for number in range(9))
    with pytest.raises(DataError, match=r"feature 5, \.\.\. \(10 in all\)\. .* `vicinal\.linear`"):
        table(f"{columns},label\n1,2,3,4,5,6,7,8,9,a\n").load()


def test_a_table_of_pairs_is_told_its_columns(table):
    with pytest.raises(
        DataError, match=r"columns are ground, aerial\. Pairs of views are in `query_path` and `gallery_"
    ):
        table("ground,aerial\na.png,b.png\n").load()
