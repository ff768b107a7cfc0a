"""The sets of ANML's Table 2: what is read, and what a split may know."""

import gzip

import numpy as np
import pytest

from vicinal.bench.linear_sets import file_of, load, read, split, stratified
from vicinal.errors import DataError


def test_the_last_column_is_the_class_and_classes_of_two_are_left_out(tmp_path):
    rows = [f"{number},{number * 0.5},{'xyz'[number % 3]}" for number in range(9)]
    with gzip.open(file_of("tiny", tmp_path), "wt") as file:
        file.write("\n".join(["a,b,class", *rows, "7,8,rare", "1,2,rare"]))
    X, y = load("tiny", tmp_path)
    assert X.shape == (9, 2) and X[3].tolist() == [3.0, 1.5]
    assert np.array_equal(y == y[0], np.arange(9) % 3 == 0) and len(np.unique(y)) == 3


WHOLE = "a,b,class\n" + "1,2,x\n3,4,y\n" * 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE.encode(), r"cannot be read \(Not a gzipped file"),
        (gzip.compress(WHOLE.encode())[:-12], r"cannot be read \("),
        (b"", "has 0 samples in 0 columns, and not two classes"),
        (gzip.compress(b""), "has 0 samples in 0 columns"),
        (gzip.compress(b"a,b,class\n"), "has 0 samples in 3 columns"),
        (gzip.compress(b"class\n" + b"x\ny\n" * 3), "has 6 samples in 1 columns"),
        (gzip.compress(b"a,class\n" + b"1,x\n" * 9), "not two classes of 3 or more"),
        (gzip.compress(b"a,class\n" + b"1,\xff\n" * 9), r"cannot be read \('utf-8'"),
        (gzip.compress(f"{WHOLE}5,z\n".encode()), "has 2 columns in line 8, and 3 names in the first"),
        (gzip.compress(f"{WHOLE}5,6,7,z\n".encode()), "has 4 columns in line 8"),
        (gzip.compress(f"{WHOLE}5,long,x\n".encode()), "has 'long' as 'b' in line 8, which is no finite number"),
        (gzip.compress(f"{WHOLE},6,x\n".encode()), "has '' as 'a' in line 8"),
        (gzip.compress(f"{WHOLE}nan,6,x\n".encode()), "has 'nan' as 'a' in line 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",  # gzip's bytes name the time
)
def test_a_file_that_is_no_set_is_refused_with_its_path_and_line(content, message, tmp_path):
    path = file_of("tiny", tmp_path)
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"tiny\.csv\.gz is to hold a set(?s:.)*{message}(?s:.)*Put a whole file"):
        read(path)


def test_scaling_and_directions_come_from_the_training_part_and_a_split_from_its_number():
    draw = np.random.default_rng(0)
    X, y = draw.standard_normal((400, 160)) * 5 + 3, draw.integers(0, 3, 400)
    train, train_y, test, test_y = split(X, y, 7)
    assert train.shape == (280, 150) and test.shape == (120, 150) and len(train_y) + len(test_y) == 400
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-10)
    assert np.abs(test.mean(axis=0)).max() > 0.05
    np.testing.assert_array_equal(split(X, y, 7)[0], train)
    assert not np.array_equal(split(X, y, 8)[3], test_y)
    narrow = split(X[:, :4], y, 7)[0]
    np.testing.assert_allclose(narrow.std(axis=0), 1)


def test_a_subsample_keeps_classes_in_proportion_and_loses_none():
    labels = np.repeat([0, 1, 2], [600, 390, 10])
    rows = stratified(labels, 100, seed=3)
    assert np.bincount(labels[rows]).tolist() == [60, 39, 2]
    assert np.array_equal(rows, stratified(labels, 100, seed=3)) and not np.array_equal(
        rows, stratified(labels, 100, 4)
    )
    assert np.array_equal(stratified(labels, 5000, seed=3), np.arange(1000))
