"""Feature vectors with labels."""

import io

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from vicinal.arguments import build, describe
from vicinal.data import DATASETS
from vicinal.data.splits import overlapping_classes
from vicinal.data.table import Arrays
from vicinal.errors import ConfigError, DataError

FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([10, 10, 9, 9, 11, 11])


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "vectors.npz", **arrays)
        return str(tmp_path / "vectors.npz")

    return write


def test_the_first_half_of_the_sorted_classes_trains(npz):
    records = Arrays(npz(features=FEATURES, labels=np.array([4, 3, 2, 1, 10, 20]))).load()
    assert records.classes == ("1", "2", "3", "4", "10", "20")
    assert records.splits.tolist() == ["test", "train", "train", "train", "test", "test"]
    assert records.source.read(1).tolist() == [2.0, 3.0]
    assert records.source.name(1) == "row 1"


def test_splits_names_and_further_numbers_come_along(npz):
    splits = np.array(["train", "val", "test"] * 2)
    path = npz(
        features=FEATURES.astype(np.float16),
        labels=np.array(["b", "a"] * 3),
        splits=splits,
        names=np.array(list("uvwxyz")),
        angle=np.linspace(0, 1, 6),
        camera=np.arange(6, dtype=np.int16),
        weights=np.zeros((3, 3)),
    )
    records = Arrays(path).load()
    assert records.classes == ("a", "b") and records.labels.tolist() == [1, 0] * 3
    assert records.splits.tolist() == ["train", "validation", "test"] * 2
    assert records.source.name(2) == "w" and records.source.features.dtype == np.float16
    assert (
        set(records.columns) == {"angle", "camera"} and records.columns["camera"].dtype == np.int64
    )
    assert overlapping_classes(records) == ("a", "b")


def test_names_of_arrays_can_be_given_and_singulars_are_understood(npz):
    assert len(Arrays(npz(x=FEATURES, y=LABELS), features="x", label="y").load()) == 6
    assert (
        len(
            Arrays(npz(features=FEATURES, label=LABELS, split=np.array(["train"] * 6)))
            .load()
            .part("train")
        )
        == 6
    )


def test_parquet_holds_the_same(tmp_path):
    path = tmp_path / "vectors.parquet"
    columns = {
        "features": FEATURES.tolist(),
        "label": LABELS,
        "split": ["train"] * 4 + ["test"] * 2,
        "angle": [0.5] * 6,
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    records = Arrays(str(path)).load()
    np.testing.assert_array_equal(records.source.features, FEATURES)
    assert records.classes == ("9", "10", "11") and records.splits.tolist() == columns["split"]
    assert set(records.columns) == {"angle"}


def test_parquet_without_rows_or_with_a_column_twice_is_named(tmp_path):
    path, vectors = tmp_path / "v.parquet", pyarrow.array(FEATURES.tolist())
    for columns, said in (
        (([vectors, vectors], ["features"] * 2), "must name each column once"),
        (([vectors[:0], vectors[:0]], ["features", "labels"]), "holds no features"),
    ):
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(*columns), path)
        with pytest.raises(DataError, match=rf"v\.parquet {said}"):
            Arrays(str(path)).load()


@pytest.mark.parametrize("kind", [np.float64, np.int32, np.uint8])
def test_other_numbers_become_float32(kind, npz):
    assert (
        Arrays(npz(features=FEATURES.astype(kind), labels=LABELS)).load().source.features.dtype
        == np.float32
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": LABELS}, "unknown array 'features'"),
        ({"features": FEATURES}, "unknown column 'label'"),
        (
            {"features": FEATURES, "labels": LABELS[:5]},
            r"has 6 rows, but `labels` has the shape \[5\]",
        ),
        ({"features": FEATURES, "labels": LABELS[:, None]}, r"`labels` has the shape \[6, 1\]"),
        (
            {"features": FEATURES, "labels": LABELS, "split": np.array(["train"])},
            r"`split` has the shape \[1\]",
        ),
        (
            {"features": FEATURES[0], "labels": LABELS},
            r"must be numbers \[n d\], got float32 \[2\]",
        ),
        ({"features": FEATURES.astype(str), "labels": LABELS}, r"must be numbers \[n d\]"),
        ({"features": FEATURES, "labels": LABELS / 2}, "row 0: `labels` is a decimal number, 5.0"),
        (
            {"features": FEATURES, "labels": np.array(["a", "", "b", "c", "d", "e"])},
            "row 1: `labels` is empty",
        ),
        (
            {"features": FEATURES[:0], "labels": LABELS[:0]},
            r"holds no features: their shape is \[0, 2\]",
        ),
        (
            {"features": FEATURES, "labels": LABELS, "splits": np.array(["train"] * 5 + ["tests"])},
            "row 5: unknown split 'tests'; did you mean 'test'",
        ),
        (
            {"features": FEATURES, "labels": LABELS, "angle": np.array([0, 1, np.nan, 3, 4, 5])},
            "row 2: `angle`",
        ),
    ],
)
def test_bad_arrays_are_rejected(arrays, message, npz):
    with pytest.raises(DataError, match=message):
        Arrays(npz(**arrays)).load()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_features_that_are_no_numbers_are_counted_and_the_rows_named(value, npz):
    features = FEATURES.astype(np.float64)
    features[[1, 4], 0] = value
    dataset = Arrays(npz(features=features, labels=LABELS))
    with pytest.raises(
        DataError, match=r"2 of 6 feature vectors hold NaN or infinite numbers \(rows 1, 4\)"
    ):
        dataset.load()
    assert len(dataset.load(strict=False)) == 6


def test_pickled_objects_are_never_loaded(npz):
    with pytest.raises(DataError, match=r"not readable as an \.npz of plain arrays"):
        Arrays(npz(features=FEATURES, labels=np.array([{}] * 6, dtype=object))).load()


@pytest.mark.parametrize("content", ["text", "cut", "damaged"])
def test_a_damaged_file_is_rejected_by_name(content, npz, tmp_path):
    file = io.BytesIO()
    np.savez(file, features=FEATURES, labels=LABELS)
    whole = file.getvalue()
    damaged = whole.replace(FEATURES.tobytes(), b"\x01" * FEATURES.nbytes)
    assert damaged != whole
    path = tmp_path / "bad.npz"
    path.write_bytes({"text": b"no zip", "cut": whole[:-30], "damaged": damaged}[content])
    with pytest.raises(DataError, match=r"bad.npz is not (an .npz|readable)"):
        Arrays(str(path)).load()


def test_another_ending_is_rejected(tmp_path):
    np.save(tmp_path / "x.npy", FEATURES)
    with pytest.raises(ConfigError, match=r"come as .npz, .parquet, .csv or .tsv"):
        Arrays(str(tmp_path / "x.npy")).load()


def test_the_set_is_rebuilt_from_its_description():
    dataset = Arrays("$VICINAL_DATA/x.npz", features="x", label="y")
    assert build(describe(dataset), DATASETS) == dataset


@pytest.mark.data
def test_bird_features_have_the_published_zero_shot_split(data_root):
    records = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz").load()
    assert len(records) == 11788 and records.source.features.shape == (11788, 1280)
    assert records.classes == tuple(str(number) for number in range(1, 201))
    train, test = records.part("train"), records.part("test")
    assert (len(train), len(test)) == (5864, 5924)
    assert train.labels.max() == 99 and test.labels.min() == 100


def test_what_embed_writes_is_read(tmp_path):
    vectors, labels = np.eye(4, dtype=np.float32), np.array([1, 1, 0, 0])
    names = np.array(["a", "b", "c", "d"])
    np.savez(
        tmp_path / "x.npz",
        embeddings=vectors,
        labels=labels,
        classes=np.array(["wren", "robin"]),
        names=names,
    )
    records = Arrays(str(tmp_path / "x.npz"), test=0.0).load()
    assert [records.classes[label] for label in records.labels] == [
        "robin",
        "robin",
        "wren",
        "wren",
    ]
    assert records.source.names == list("abcd") and (records.source.features == vectors).all()
