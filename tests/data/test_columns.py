"""Tables as columns; every error names file and row."""

import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from vicinal.data.table import column_names, read_columns, read_vectors
from vicinal.errors import ConfigError, DataError


def csv(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def parquet(tmp_path, **columns):
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_csv_and_parquet_give_the_same_columns(tmp_path):
    from_csv = read_columns(
        csv(tmp_path, "path,label,angle,camera,note\na.png,x,0.5,3,hm\nb.png,y,1,4,\n")
    )
    from_parquet = read_columns(
        parquet(
            tmp_path,
            path=["a.png", "b.png"],
            label=["x", "y"],
            angle=[0.5, 1.0],
            camera=[3, 4],
            note=["hm", None],
        )
    )
    for columns in (from_csv, from_parquet):
        assert columns.texts("path") == ["a.png", "b.png"] and columns.texts("label") == ["x", "y"]
        numbers = columns.other_numbers(without=("path", "label"))
        assert set(numbers) == {"angle", "camera"}
        assert numbers["angle"].tolist() == [0.5, 1.0] and numbers["camera"].dtype == np.int64


def test_spreadsheet_habits_are_understood(tmp_path):
    text = '\ufeffpath, label \r\n"a, b.png", x \r\n\r\nc.png,y\r\n'
    columns = read_columns(csv(tmp_path, text))
    assert columns.texts("path") == ["a, b.png", "c.png"] and columns.texts("label") == ["x", "y"]
    assert columns.place(1).endswith("table.csv, line 4")
    assert read_columns(csv(tmp_path, "path\tlabel\na\tb\n", "table.tsv")).texts("label") == ["b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header must name each column once"),
        ("path,path\na,b\n", "line 1: the header must name each column once"),
        ("path,label\na,b\nc\n", "line 3: the header has 2 columns, this row 1"),
        ("path,label\na,b,c\n", "line 2: the header has 2 columns, this row 3"),
        ('path,label\n"a,b\n', "not readable as a table"),
        ("path,label\na,\n", "line 2: `label` is empty"),
        ("path,labels\na,b\n", "unknown column 'label'; did you mean 'labels'"),
    ],
)
def test_a_broken_csv_is_rejected_with_its_line(text, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_columns(csv(tmp_path, text)).texts("label")


@pytest.mark.parametrize("cell", ["", "left", "nan", "inf"])
def test_a_hole_in_a_column_of_numbers_is_rejected_with_its_line(cell, tmp_path):
    columns = read_columns(csv(tmp_path, f"angle,note\n1,a\n{cell},b\n3,c\n"))
    with pytest.raises(DataError, match="line 3: `angle` must be a number"):
        columns.other_numbers(without=())


def test_a_hole_at_the_start_does_not_make_numbers_texts(tmp_path):
    with pytest.raises(DataError, match="line 2: `angle` must be a number"):
        read_columns(csv(tmp_path, "angle,note\n,a\n2,b\n")).other_numbers(without=())


def test_numbers_too_long_for_an_integer_become_decimals(tmp_path):
    numbers = read_columns(csv(tmp_path, f"id\n{10**20}\n1\n")).other_numbers(without=())
    assert numbers["id"].dtype == np.float64


def test_other_files_are_rejected(tmp_path):
    with pytest.raises(DataError, match="UTF-8"):
        read_columns(csv(tmp_path, "path,läbel\n", encoding="latin-1"))
    with pytest.raises(ConfigError, match=r"ends in .csv, .tsv or .parquet"):
        read_columns(csv(tmp_path, "", "table.xlsx"))
    with pytest.raises(DataError, match="not readable as Parquet"):
        read_columns(csv(tmp_path, "no parquet", "table.parquet"))


def test_decimal_labels_are_rejected(tmp_path):
    with pytest.raises(DataError, match="row 0: `label` is a decimal number"):
        read_columns(parquet(tmp_path, label=[1.0, 2.0])).texts("label")
    with pytest.raises(DataError, match="row 1: `label` is empty"):
        read_columns(parquet(tmp_path, label=[1, None])).texts("label")
    assert read_columns(parquet(tmp_path, label=[1, 2])).texts("label") == ["1", "2"]


@pytest.mark.parametrize("size", [-1, 3])
def test_vectors_are_lists_of_any_kind(size, tmp_path):
    values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    path = parquet(
        tmp_path,
        features=pyarrow.array(values, pyarrow.list_(pyarrow.float32(), size)),
        label=[0, 1],
    )
    vectors = read_vectors(path, "features")
    assert vectors.dtype == np.float32 and vectors.tolist() == values
    assert column_names(path) == ["features", "label"]
    assert set(read_columns(path, without="features").cells) == {"label"}


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (
            [[1.0, 2.0], [1.0]],
            pyarrow.list_(pyarrow.float32()),
            "row 1: `features` has 1 numbers, the first row has 2",
        ),
        ([[1.0], None], pyarrow.list_(pyarrow.float32()), "row 1: `features` has 0 numbers"),
        ([["a"], ["b"]], pyarrow.list_(pyarrow.string()), "got list<element: string>"),
        ([1.0, 2.0], pyarrow.float64(), "must hold lists of numbers, got double"),
    ],
)
def test_broken_vectors_are_rejected(values, kind, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_vectors(parquet(tmp_path, features=pyarrow.array(values, kind)), "features")


def test_a_missing_column_of_vectors_is_rejected_with_the_nearest_name(tmp_path):
    with pytest.raises(DataError, match="unknown column 'features'; did you mean 'feature'"):
        read_vectors(parquet(tmp_path, feature=[[1.0]]), "features")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = parquet(tmp_path, label=[1])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for read in (read_columns, column_names, lambda path: read_vectors(path, "label")):
        with pytest.raises(ConfigError, match=r"vicinal\[parquet\]"):
            read(path)
