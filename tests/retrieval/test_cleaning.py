"""Label errors, copies, outliers and overlapping classes are found where they were planted."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image

from vicinal.errors import DataError
from vicinal.retrieval import cleaning as module
from vicinal.retrieval.cleaning import (
    _Evidence,
    find_issues,
    judge_labels,
)


def bunches(classes=4, each=20, dim=6, seed=0, apart=6.0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    vectors = apart * np.eye(dim)[labels] + rng.normal(size=(len(labels), dim))
    return vectors.astype(np.float32), labels


# -- label errors ----------------------------------------------------------------------------------


def without_the_row(vectors, labels, row, ridge):
    """Mahalanobis distances to class means from all rows but one, written out."""
    rest = np.delete(np.arange(len(labels)), row)
    means = np.stack([vectors[rest[labels[rest] == c]].mean(axis=0) for c in range(3)])
    apart = vectors[rest] - means[labels[rest]]
    inverse = np.linalg.inv(apart.T @ apart + ridge * np.eye(4))
    away = vectors[row] - means
    return -len(labels) / 2 * np.einsum("cd,de,ce->c", away, inverse, away)


def test_discriminants_leave_the_row_out():
    vectors, labels = bunches(classes=3, each=5, dim=4, apart=2.0)
    vectors = vectors.astype(np.float64)
    means = np.stack([vectors[labels == c].mean(axis=0) for c in range(3)])
    ridge = ((vectors - means[labels]) ** 2).sum() / 4
    evidence = _Evidence(torch.from_numpy(vectors), torch.from_numpy(labels), 3, "euclidean")
    expected = [without_the_row(vectors, labels, row, ridge) for row in range(15)]
    assert_allclose(evidence.discriminants(torch.arange(15)), expected, rtol=1e-9)


def test_votes_are_weighted_shares_of_the_nearest(monkeypatch):
    monkeypatch.setattr(module, "NEIGHBORS", 2)
    line = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    labels = torch.tensor([0, 0, 1, 1])
    votes = _Evidence(line, labels, 2, "euclidean").votes(torch.tensor([0]))
    near = np.exp(-2 / 9)  # at distances 1 and 3 of at most 3
    far = np.exp(-2)
    assert_allclose(
        votes.exp()[0], [near / (near + far) + 0.05, far / (near + far) + 0.05], rtol=1e-6
    )


def test_planted_errors_come_first_with_their_right_label_and_are_counted():
    vectors, labels = bunches(classes=5, each=40, apart=7.0)
    noisy = labels.copy()  # a tenth
    wrong = np.arange(0, 200, 10)
    noisy[wrong] = (labels[wrong] + 1 + np.arange(20) % 4) % 5
    verdicts = judge_labels(vectors, noisy)
    assert set(np.argsort(-verdicts.wrong)[: len(wrong)]) == set(wrong)
    assert (verdicts.suggested[wrong] == labels[wrong]).all()
    assert verdicts.noise == pytest.approx(0.1, abs=0.01)
    assert verdicts.wrong.sum() == pytest.approx(20, abs=1)


def test_a_clean_set_has_no_errors_and_probabilities_are_numbers():
    verdicts = judge_labels(*bunches(apart=40.0))
    assert verdicts.wrong.max() < 0.1 and verdicts.noise < 0.011
    # Nothing tells these apart.
    equal = judge_labels(np.ones((12, 3), np.float32), np.arange(12) % 3)
    assert np.isfinite(equal.wrong).all() and equal.wrong.max() <= 1


def test_the_only_row_of_a_class_is_not_judged():
    vectors, labels = bunches()
    labels[7] = 4
    assert judge_labels(vectors, labels).wrong[7] == 0


@pytest.mark.parametrize("labels", [[0] * 6, range(6)])
def test_labels_that_nothing_can_judge_are_an_error(labels):
    with pytest.raises(DataError, match="got 6 rows of"):
        judge_labels(np.eye(6, dtype=np.float32), np.array(labels))


# -- findings --------------------------------------------------------------------------------------


def test_every_kind_is_found_where_it_was_planted(collect):
    vectors, labels = bunches(classes=6, each=30, dim=8)
    # classes 4 and 5 overlap
    vectors[150:] += vectors[120:150].mean(axis=0) - vectors[150:].mean(axis=0)
    labels[0] = 2
    vectors[40] = vectors[70] + 1e-4  # row 40 of class 1, row 70 of class 2
    vectors[100] = 60.0
    names = [None, *(f"class {label}" for label in labels)]  # a row without a label comes first
    snapshot = collect(np.concatenate([vectors[:1], vectors]), names)
    listed, page = find_issues(snapshot)
    found = {(each.kind, each.row): each for each in listed}
    assert found["label", 1].suggested == "class 0" and found["label", 1].score > 0.9
    assert all(row - 1 in range(30) for row in found["label", 1].neighbors)
    copy = found.get(("duplicate", 41)) or found["duplicate", 71]
    assert copy.score > 0.9 and {copy.row, *copy.neighbors} == {41, 71}
    assert found["outlier", 101].score > 0.9 and [k for k, _ in found].count("outlier") == 1
    (overlap,) = (each for each in listed if each.kind == "class")
    assert {snapshot.items[overlap.row].label, overlap.suggested} == {"class 4", "class 5"}
    scores = [each.score for each in listed]
    assert scores == sorted(scores, reverse=True) and min(scores) >= 0 and max(scores) <= 1
    wrong = [k for k, _ in found].count("label")
    assert page.lead[0].startswith(f"{wrong} of 180 labels are probably wrong")


def test_copied_pictures_of_two_classes_are_found_by_their_pixels(collect, tmp_path):
    rng = np.random.default_rng(0)
    for row in range(12):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize((160, 120), Image.Resampling.BICUBIC).save(tmp_path / f"{row}.png")
    with Image.open(tmp_path / "3.png") as image:
        image.resize((90, 70)).save(tmp_path / "7.png")
    vectors = rng.normal(size=(12, 4))
    found, page = find_issues(collect(vectors, np.arange(12) // 6, root=tmp_path))
    copies = [{each.row, *each.neighbors} for each in found if each.kind == "duplicate"]
    assert copies == [{3, 7}] and "planted" in page.lead[1]


def test_nothing_found_is_said_without_an_estimate(collect):
    """`About 1.0% of 209 labels are wrong` stood beside 0 findings."""
    found, page = find_issues(collect(*bunches(apart=40.0)))
    assert not found and page.lead[0].startswith("0 of 80 labels are probably wrong")
