"""Tables of image paths, of pairs of views, of feature vectors: what is read, and every error with
its file and row."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from numpy.testing import assert_array_equal

from vicinal.data import Arrays, CrossView, Table, hold_out, open_path
from vicinal.data.records import GALLERY, QUERY
from vicinal.data.splits import overlapping_classes
from vicinal.data.table import read_columns
from vicinal.errors import ConfigError, DataError

FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([10, 10, 9, 9, 11, 11])


@pytest.fixture
def root(write_pictures):
    """A folder with the pictures 0.png to 3.png."""
    return write_pictures("0.png", "1.png", "2.png", "3.png")


@pytest.fixture
def write(root):
    """``write(text)``, ``write(column=[...])``: a table beside the pictures, as CSV or Parquet."""

    def make(text="", name="list.csv", encoding="utf-8", **columns):
        if columns:
            name = "list.parquet"
            pyarrow.parquet.write_table(pyarrow.table(columns), root / name)
        else:
            (root / name).write_bytes(text.encode(encoding))
        return root / name

    return make


@pytest.fixture
def npz(tmp_path):
    def make(**arrays):
        np.savez(tmp_path / "vectors.npz", **arrays)
        return str(tmp_path / "vectors.npz")

    return make


# -- pictures -------------------------------------------------------------------------------------


def test_rows_splits_and_numbers_are_those_of_the_table(write):
    rows = "0.png,x,train,0.5,a\n1.png,10,val,1,b\n2.png,9,test,2,c\n3.png,x,test,3,d\n"
    records = open_path(write(f"path,label,split,angle,note\n{rows}")).load()
    assert records.name == "list"
    assert records.source.paths == ["0.png", "1.png", "2.png", "3.png"]
    assert records.class_names() == [["x"], ["10"], ["9"], ["x"]]
    assert records.splits.tolist() == ["train", "validation", "test", "test"]
    assert [*records.columns] == ["angle"] and records.columns["angle"].tolist() == [0.5, 1, 2, 3]
    assert records.source.read(3).size == (12, 10)
    assert overlapping_classes(records) == ("x",)


def test_without_splits_classes_are_divided(write):
    path = write("path,label\n0.png,2\n1.png,10\n2.png,2\n3.png,10\n")
    records = Table(str(path), order="sorted").load()
    assert records.classes == ("2", "10")
    assert records.splits.tolist() == ["train", "test", "train", "test"]


def test_images_may_lie_elsewhere_and_be_named_by_other_columns(write, root):
    (root / "lists").mkdir()
    path = write(f"path,label\n0.png,a\n{root / '1.png'},b\n", "lists/list.csv")
    records = Table(str(path), images=str(root)).load()
    assert records.source.read(0).size == records.source.read(1).size == (12, 10)
    path = write("file,kind\n0.png,a\n1.png,b\n")
    records = replace(open_path(path, image="file"), label="kind").load()
    assert records.source.paths == ["0.png", "1.png"] and records.classes == ("a", "b")


def test_a_box_cuts_its_region_out_of_the_picture(write):
    def read(header, *rows, **settings):
        table = write("\n".join([f"path,label,{header}", *(f"0.png,{row}" for row in rows)]))
        return Table(str(table), test=1.0, **settings).load()

    whole = np.asarray(read("note", "a,").source.read(0))
    # the second reaches over the edge, 12 x 10
    records = read("x,y,w,h", "a,2,1,4,5", "b,7,4,20,20")
    assert_array_equal(records.source.read(0), whole[1:6, 2:6])
    assert_array_equal(records.source.read(1), whole[4:, 7:])
    assert not records.columns and len({records.source.content(row) for row in (0, 1)}) == 2
    corners = "x_1,y_1,x_2,y_2", "a,2,1,6,6"
    assert_array_equal(read(*corners).source.read(0), whole[1:6, 2:6])
    assert_array_equal(read(*corners, margin=0.5).source.read(0), whole[:8, :8])
    with pytest.raises(ConfigError, match="margin"):
        read(*corners, margin=2.0)
    with pytest.raises(DataError, match=r"0\.png has 12 x 10 pixels; the box \(12, 0, 4, 4\)"):
        read("x,y,w,h", "a,12,0,4,4").source.read(0)


def test_csv_and_parquet_give_the_same_columns(write):
    cells = {"path": ["a.png", "b.png"], "angle": [0.5, 1.0], "camera": [3, 4], "note": ["", None]}
    text = "path,angle,camera,note\na.png,0.5,3,hm\nb.png,1,4,\n"
    for columns in map(read_columns, (write(text), write(**cells))):
        assert columns.texts("path") == ["a.png", "b.png"]
        numbers = columns.other_numbers(without=("path",))
        assert numbers["angle"].tolist() == [0.5, 1.0] and numbers["camera"].dtype == np.int64
        assert len(numbers) == 2


def test_spreadsheet_habits_are_understood(write):
    columns = read_columns(write('\ufeffpath, label \r\n"a, b.png", x \r\n\r\nc.png,y\r\n'))
    assert columns.texts("path") == ["a, b.png", "c.png"] and columns.texts("label") == ["x", "y"]
    assert columns.place(1).endswith("list.csv, line 4")
    assert read_columns(write("path\tlabel\na\tb\n", "table.tsv")).texts("label") == ["b"]
    assert read_columns(write("path;label\na;b, c\n")).texts("label") == ["b, c"]


@pytest.mark.parametrize("label", ["²", str(10**20), "1e5"])
def test_a_label_that_is_nearly_a_number_is_a_text(write, label):
    records = open_path(write(f"path,label\n0.png,{label}\n1.png,3\n")).load()
    assert set(records.classes) == {label, "3"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header must name each column once"),
        ("path,label\n0.png,b\nc\n", "line 3: other columns than the 2 of the header"),
        ('path,label\n"a,b\n', "line 2: unexpected end of data"),
        ("path,label\n", "has no rows"),
        ("path,lables\n0.png,a\n", "unknown column 'label'; did you mean 'lables'"),
        ("path,label\n0.png,\n", "line 2: `label` is empty"),
        ("path,label,split\n0.png,a,train\n1.png,b,trian\n", "line 3: unknown split 'trian'"),
        ("path,label,angle\n0.png,a,1\n1.png,b,\n", "line 3: `angle` must be a number"),
        ("path,label,x,y,w,h\n0.png,a,1,1,0,2\n", r"line 2: the box \[1, 1, 0, 2\].*no pixel"),
        ("length,label\n1,a\nx,b\n", "line 3: `length` must be a number, got 'x'"),
        ("kind,label\na,b\n", r"no column of numbers among kind, label.*data\.path=COLUMN"),
        ("length,kind\n1,a\n", r"'label'.*data\.label=COLUMN"),
    ],
)
def test_bad_tables_are_rejected_with_their_line(text, message, write):
    with pytest.raises(DataError, match=message):
        open_path(write(text)).load()


def test_missing_images_are_counted_and_the_first_are_named(write):
    rows = "".join(f"lost/{number}.png,{number % 2}\n" for number in range(5))
    dataset = open_path(write(f"path,label\n0.png,a\n{rows}"))
    message = r"do not exist, 5 in its 6 rows of `path`: line 3: .*lost/0.png; .*; \.\.\."
    with pytest.raises(DataError, match=message):
        dataset.load()
    assert len(dataset.load(strict=False)) == 6


def test_other_files_are_rejected(write):
    with pytest.raises(DataError, match="is no table in UTF-8"):
        read_columns(write("path,läbel\n", encoding="latin-1"))
    with pytest.raises(ConfigError, match=r"ends in .csv, .tsv or .parquet"):
        read_columns(write("", "table.xlsx"))
    with pytest.raises(DataError, match="not readable as Parquet"):
        read_columns(write("no parquet", "table.parquet"))
    texts = pyarrow.array([b"caf\xe9.png", b"b.png"]).view(pyarrow.string())
    with pytest.raises(DataError, match=r"list\.parquet is not readable as Parquet"):
        Table(str(write(path=texts, label=["a", "b"]))).load()


# -- pairs of views -------------------------------------------------------------------------------

NAMES = "abcdef"


@pytest.fixture
def pairs(write_pictures):
    """``pairs(rows, header)``: a table beside six places, seen from the ground and from the air;
    ``a`` twice from the ground."""
    views = [f"{view}/{name}.png" for view in ("ground", "air") for name in NAMES]
    root = write_pictures(*views, "ground/a2.png")

    def write(*rows, header="query_path,gallery_path"):
        (root / "x.csv").write_text("\n".join([header, *rows]) + "\n")
        return str(root / "x.csv")

    return write


@pytest.fixture
def path(pairs):
    rows = [f"ground/{name}.png,air/{name}.png" for name in reversed(NAMES)]
    return pairs(*rows, "ground/a2.png,air/a.png")


def test_queries_come_first_and_a_gallery_image_is_a_class(path):
    assert open_path(path) == CrossView(path)
    records = CrossView(path).load()
    assert records.classes == tuple(f"air/{name}.png" for name in NAMES)
    assert records.columns["role"].tolist() == [QUERY] * 7 + [GALLERY] * 6
    names = [records.source.name(row) for row in (0, 6, 7, 12)]
    assert names == ["ground/f.png", "ground/a2.png", "air/a.png", "air/f.png"]
    assert records.labels.tolist() == [5, 4, 3, 2, 1, 0, 0, 0, 1, 2, 3, 4, 5]
    assert records.source.read(12).size == (12, 10) and not records.columns["angle"].any()


def test_both_views_of_a_place_are_in_one_part_and_stay_together(path):
    split = CrossView(path, seed=3).load()
    held = hold_out(CrossView(path, test=0.0).load(), 0.5, 0)
    for records, parts in ((split, {"test", "train"}), (held, {"train", "validation"})):
        assert set(records.splits) == parts
        assert all(len(set(records.splits[records.labels == label])) == 1 for label in range(6))


def test_an_angle_is_that_of_the_pair_and_splits_may_be_given(pairs):
    rows = ["ground/a.png,air/a.png,30,val", "ground/a2.png,air/a.png,-90.5,val"]
    header = "query_path,gallery_path,angle,split"
    records = CrossView(pairs(*rows, "ground/b.png,air/b.png,0,test", header=header)).load()
    angle = records.columns["angle"]
    labels = records.labels
    found = [angle[3 + labels[query]] - angle[query] for query in range(3)]
    assert found == [30.0, -90.5, 0.0]
    assert records.splits.tolist() == ["validation"] * 2 + ["test", "validation", "test"]


PAIR = "query_path,gallery_path"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (f"{PAIR},angle", ["a,a,15", "b,b,north"], "line 3: `angle` must be a number, got 'north'"),
        (PAIR, ["a,nowhere"], r"1 in its 1 rows of `gallery_path`: line 2: .*nowhere\.png"),
        (f"{PAIR},split", ["a,a,train", "a2,a,test"], "line 3: air/a.png is a test image here"),
        (PAIR, [], "no rows"),
        # So that a misspelt one is named as what it should be, not taken for a table of labels.
        ("query_pth,gallery_path", ["a,a"], "unknown column 'query_path'"),
    ],
)
def test_bad_pairs_are_rejected_with_their_line(pairs, header, rows, message):
    cells = [row.split(",") for row in rows]
    lines = [",".join([f"ground/{c[0]}.png", f"air/{c[1]}.png", *c[2:]]) for c in cells]
    with pytest.raises(DataError, match=rf"x\.csv.*{message}"):
        open_path(pairs(*lines, header=header)).load()


# -- feature vectors ------------------------------------------------------------------------------


def test_a_table_of_numbers_is_a_vector_for_each_row(write):
    path = write("length,kind,note,width,split\n1,a,x,0.5,train\n2,b,y,1,test\n")
    records = replace(open_path(path), label="kind").load()
    assert records.source.kind == "features" and records.source.read(1).tolist() == [2.0, 1.0]
    assert records.classes == ("a", "b") and records.splits.tolist() == ["train", "test"]


def test_the_first_half_of_the_sorted_classes_trains(npz):
    records = Arrays(npz(features=FEATURES, labels=np.array([4, 3, 2, 1, 10, 20]))).load()
    assert records.classes == ("1", "2", "3", "4", "10", "20")
    assert records.splits.tolist() == ["test", "train", "train", "train", "test", "test"]
    assert records.source.read(1).tolist() == [2.0, 3.0]
    assert records.source.name(1) == "row 1"


def test_splits_names_and_further_numbers_come_along(npz):
    path = npz(
        features=FEATURES.astype(np.float16),
        labels=np.array(["b", "a"] * 3),
        splits=np.array(["train", "val", "test"] * 2),
        names=np.array(list("uvwxyz")),
        angle=np.linspace(0, 1, 6),
        camera=np.arange(6, dtype=np.int16),
        weights=np.zeros((3, 3)),
    )
    records = Arrays(path).load()
    assert records.classes == ("a", "b") and records.labels.tolist() == [1, 0] * 3
    assert records.splits.tolist() == ["train", "validation", "test"] * 2
    assert records.source.name(2) == "w" and records.source.features.dtype == np.float16
    assert records.columns.keys() == {"angle", "camera"}
    assert records.columns["camera"].dtype == np.int64


def test_what_embed_writes_is_read(npz):
    given = {"classes": np.array(["wren", "robin"]), "names": np.array(list("abcd"))}
    path = npz(embeddings=np.eye(4), labels=np.array([1, 1, 0, 0]), **given)
    records = Arrays(path, test=0.0).load()
    assert records.class_names() == [["robin"]] * 2 + [["wren"]] * 2
    assert records.source.names == list("abcd")


@pytest.mark.parametrize("size", [-1, 2])
def test_parquet_holds_the_same(write, size):
    path = write(
        features=pyarrow.array(FEATURES.tolist(), pyarrow.list_(pyarrow.float32(), size)),
        label=LABELS,
        split=["train"] * 4 + ["test"] * 2,
        angle=[0.5] * 6,
    )
    records = open_path(path).load()
    assert_array_equal(records.source.features, FEATURES)
    assert records.source.features.dtype == np.float32
    assert records.classes == ("9", "10", "11") and set(records.columns) == {"angle"}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": None}, "no column of numbers among labels"),
        ({"labels": None}, "unknown column 'label'"),
        ({"labels": LABELS[:5]}, "has 6 rows, but `labels` has 5"),
        ({"features": FEATURES[0]}, r"must be numbers \[n d\]"),
        ({"labels": LABELS / 2}, "row 0: `labels` is a decimal number, 5.0"),
        ({"features": FEATURES[:0], "labels": LABELS[:0]}, "has no rows"),
        ({"splits": np.array(["train"] * 5 + ["tests"])}, "row 5: unknown split 'tests'"),
        ({"angle": np.array([0, 1, np.nan, 3, 4, 5])}, "row 2: `angle`"),
        ({"labels": np.array([{}] * 6, dtype=object)}, r"not readable as an \.npz of plain"),
    ],
)
def test_bad_arrays_are_rejected(arrays, message, npz):
    given = {"features": FEATURES, "labels": LABELS} | arrays
    path = npz(**{name: array for name, array in given.items() if array is not None})
    with pytest.raises(DataError, match=message):
        Arrays(path).load()


@pytest.mark.parametrize("value", [np.nan, 1e300])
def test_features_that_are_no_numbers_are_counted_and_the_rows_named(value, npz):
    features = FEATURES.astype(np.float64)
    features[[1, 4], 0] = value
    dataset = Arrays(npz(features=features, labels=LABELS))
    message = r"2 of 6 feature vectors hold NaN or infinite numbers \(rows 1, 4\)"
    with pytest.raises(DataError, match=message):
        dataset.load()
    assert len(dataset.load(strict=False)) == 6


def test_a_damaged_file_is_rejected_by_name(npz):
    path = Path(npz(features=FEATURES, labels=LABELS))
    whole = path.read_bytes()
    damaged = whole.replace(FEATURES.tobytes(), b"\x01" * FEATURES.nbytes)
    assert damaged != whole
    for content in (b"no zip", damaged):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"vectors\.npz is not readable"):
            open_path(path).load()


@pytest.mark.data
def test_bird_features_have_the_published_zero_shot_split(data_root):
    records = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz").load()
    assert records.counts() == {"train": (5864, 100), "validation": (0, 0), "test": (5924, 100)}
