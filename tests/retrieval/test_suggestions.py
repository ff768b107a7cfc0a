"""What to label next: far from labels, for many, unlike what was chosen before."""

import csv
from io import StringIO

import numpy as np
import pytest
import torch

from vicinal.errors import DataError
from vicinal.retrieval import suggestions as module
from vicinal.retrieval.suggestions import suggest, suggestions_page

EYE = np.eye(4, dtype=np.float32)


def test_the_chosen_are_those_of_the_printed_sum():
    """Greedy maximization of F(S), recomputed for every candidate; all pairs within reach."""
    rng = np.random.default_rng(1)
    pool = rng.normal(size=(30, 3)).astype(np.float32)
    known = rng.normal(size=(10, 3)).astype(np.float32)
    labels = np.arange(10) % 3
    p = module._calibrated(torch.from_numpy(known), torch.from_numpy(labels), "euclidean")
    far = np.linalg.norm(pool[:, None].astype(np.float64) - pool, axis=2)
    before = covered = p(np.linalg.norm(pool[:, None] - known, axis=2).min(axis=1))
    found = suggest(pool, known, labels, 5)
    for row, gain in zip(found.rows, found.gains, strict=True):
        sums = [np.maximum(p(each), covered).sum() for each in far]
        assert row == np.argmax(sums) and gain == pytest.approx(sums[row] - covered.sum(), rel=1e-5)
        covered = np.maximum(covered, p(far[row]))
    assert found.expected == pytest.approx((before.mean(), covered.mean()))
    assert found.known == pytest.approx(before[found.rows])


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_labels_of_one_class_or_one_of_each_still_calibrate(labels):
    found = suggest(EYE, EYE[:3] + 0.1, np.array(labels), 4)
    assert sorted(found.rows.tolist()) == [0, 1, 2, 3] and np.isfinite(found.gains).all()


def test_more_than_there_are_or_nothing_labeled_is_an_error():
    with pytest.raises(DataError, match="1 to 4 can be chosen; got --k 5"):
        suggest(EYE, EYE, np.arange(4), 5)
    with pytest.raises(DataError, match="got 0"):
        suggest(EYE, EYE[:0], np.arange(0), 1)


def test_suggestions_are_a_table_to_fill_in_and_a_page(collect, tmp_path):
    rng = np.random.default_rng(0)
    known = collect(rng.normal(size=(20, 4)), np.arange(20) % 2, folder="known")
    vectors = rng.normal(size=(40, 4))
    names = [f"<script>{row}" for row in range(40)]
    pool = collect(vectors, [None] * 40, path=names, folder="pool")
    page = suggestions_page(pool, known, 2)
    chosen = page.groups[0].rows
    rows = list(csv.DictReader(StringIO(page.table)))
    assert list(rows[0]) == ["path", "label", "known", "gain"]
    assert page.facts[0] == ("to label", "2")
    assert [(row["path"], row["label"]) for row in rows] == [(names[r], "") for r in chosen]
    files = collect(vectors, [None] * 40, root=tmp_path, folder="files")
    path = next(csv.DictReader(StringIO(suggestions_page(files, known, 2).table)))["path"]
    assert path == str(tmp_path / f"{chosen[0]}.png")  # as in a corrected table
