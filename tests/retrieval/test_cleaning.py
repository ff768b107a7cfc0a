"""Label errors, copies, outliers and overlapping classes are found where they were planted;
decisions are checked."""

import csv
from io import StringIO

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.errors import DataError
from vicinal.retrieval import cleaning as module
from vicinal.retrieval.cleaning import (
    _Evidence,
    apply_decisions,
    choose,
    find_issues,
    findings_contents,
    findings_table,
    judge_labels,
    suggest,
    suggestions_contents,
    suggestions_table,
)
from vicinal.retrieval.collection import Access, CollectionDirectory
from vicinal.retrieval.contact_sheets import as_page
from vicinal.retrieval.generations import publish
from vicinal.retrieval.store import Item, Place


def bunches(classes=4, each=20, dim=6, seed=0, apart=6.0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    return (apart * np.eye(dim)[labels] + rng.normal(size=(len(labels), dim))).astype(
        np.float32
    ), labels


def snapshot_of(folder, vectors, labels, paths=None, places=None, metadata=None):
    paths = paths or [f"{row}.png" for row in range(len(vectors))]
    items = [
        Item(
            id=row,
            path=path,
            label=None if label is None else str(label),
            metadata=(metadata or {}).get(row, {}),
        )
        for row, (path, label) in enumerate(zip(paths, labels, strict=True))
    ]
    places = places or [Place(path="x.npz", kind="features", root=None)]
    publish(folder, items, vectors, dim=vectors.shape[1], places=places)
    return CollectionDirectory.open(folder, Access(images=["/"])).snapshot()


# -- label errors
# -------------------------------------------------------------------------------------------------


def without_the_row(vectors, labels, row, ridge):
    """Mahalanobis distances to class means from all rows but one, written out."""
    rest = np.delete(np.arange(len(labels)), row)
    means = np.stack(
        [vectors[rest[labels[rest] == c]].mean(axis=0) for c in range(labels.max() + 1)]
    )
    scatter = sum(
        np.outer(vectors[i] - means[labels[i]], vectors[i] - means[labels[i]]) for i in rest
    )
    inverse = np.linalg.inv(scatter + ridge * np.eye(vectors.shape[1]))
    return [
        -len(labels) / 2 * (vectors[row] - mean) @ inverse @ (vectors[row] - mean) for mean in means
    ]


def test_discriminants_leave_the_row_out():
    vectors, labels = bunches(classes=3, each=5, dim=4, apart=2.0)
    vectors = vectors.astype(np.float64)
    means = np.stack([vectors[labels == c].mean(axis=0) for c in range(3)])
    ridge = ((vectors - means[labels]) ** 2).sum() / 4
    evidence = _Evidence(torch.from_numpy(vectors), torch.from_numpy(labels), 3, "euclidean")
    expected = [without_the_row(vectors, labels, row, ridge) for row in range(15)]
    np.testing.assert_allclose(evidence.discriminants(torch.arange(15)), expected, rtol=1e-9)


def test_votes_are_weighted_shares_of_the_nearest(monkeypatch):
    monkeypatch.setattr(module, "NEIGHBORS", 2)
    line, labels = torch.tensor([[0.0], [1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1, 1])
    votes = _Evidence(line, labels, 2, "euclidean").votes(torch.tensor([0]))
    near, far = np.exp(-2 / 9), np.exp(-2)  # at distances 1 and 3 of at most 3
    np.testing.assert_allclose(
        votes.exp()[0], [near / (near + far) + 0.05, far / (near + far) + 0.05], rtol=1e-6
    )


def test_planted_errors_come_first_with_their_right_label_and_are_counted():
    vectors, labels = bunches(classes=5, each=40, apart=7.0)
    noisy, wrong = labels.copy(), np.arange(0, 200, 10)  # a tenth
    noisy[wrong] = (labels[wrong] + 1 + np.arange(20) % 4) % 5
    verdicts = judge_labels(vectors, noisy)
    assert set(np.argsort(-verdicts.wrong)[: len(wrong)]) == set(wrong)
    assert (verdicts.suggested[wrong] == labels[wrong]).all()
    assert verdicts.noise == pytest.approx(0.1, abs=0.01) and verdicts.wrong.sum() == pytest.approx(
        20, abs=1
    )


def test_a_clean_set_has_no_errors_and_probabilities_are_numbers():
    verdicts = judge_labels(*bunches(apart=40.0))
    assert verdicts.wrong.max() < 0.1 and verdicts.noise < 0.011
    equal = judge_labels(
        np.ones((12, 3), np.float32), np.arange(12) % 3
    )  # nothing tells these apart
    assert np.isfinite(equal.wrong).all() and equal.wrong.max() <= 1


def test_the_only_row_of_a_class_is_not_judged():
    vectors, labels = bunches()
    labels[7] = 4
    assert judge_labels(vectors, labels).wrong[7] == 0


def test_parts_of_rows_and_of_logits_make_no_difference(monkeypatch):
    vectors, labels = bunches(apart=2.0)
    whole = judge_labels(vectors, labels)
    monkeypatch.setattr(module, "_LOGITS", 200)
    np.testing.assert_allclose(judge_labels(vectors, labels).wrong, whole.wrong, rtol=1e-5)


@pytest.mark.parametrize("labels", [[0] * 6, range(6)])
def test_labels_that_nothing_can_judge_are_an_error(labels):
    with pytest.raises(DataError, match="got 6 rows of"):
        judge_labels(np.eye(6, dtype=np.float32), np.array(labels))


# -- findings
# -----------------------------------------------------------------------------------------------------


def test_every_kind_is_found_where_it_was_planted(tmp_path):
    vectors, labels = bunches(classes=6, each=30, dim=8)
    vectors[150:] += vectors[120:150].mean(axis=0) - vectors[150:].mean(
        axis=0
    )  # classes 4 and 5 overlap
    labels[0] = 2
    vectors[40] = vectors[70] + 1e-4  # row 40 of class 1, row 70 of class 2
    vectors[100] = 60.0
    names = [None, *(f"class {label}" for label in labels)]  # a row without a label comes first
    snapshot = snapshot_of(tmp_path / "collection", np.concatenate([vectors[:1], vectors]), names)
    findings = find_issues(snapshot)
    found = {(each.kind, each.row): each for each in findings.found}
    assert found["label", 1].suggested == "class 0" and found["label", 1].score > 0.9
    assert all(row - 1 in range(30) for row in found["label", 1].neighbors)
    copy = found.get(("duplicate", 41)) or found["duplicate", 71]
    assert copy.score > 0.9 and {copy.row, *copy.neighbors} == {41, 71}
    assert found["outlier", 101].score > 0.9 and [k for k, _ in found].count("outlier") == 1
    (overlap,) = (each for each in findings.found if each.kind == "class")
    assert {snapshot.items()[overlap.row].label, overlap.suggested} == {"class 4", "class 5"}
    scores = [each.score for each in findings.found]
    assert scores == sorted(scores, reverse=True) and min(scores) >= 0 and max(scores) <= 1


def test_copied_pictures_of_two_classes_are_found_by_their_pixels(tmp_path):
    rng, folder = np.random.default_rng(0), tmp_path / "pictures"
    folder.mkdir()
    for row in range(12):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize((160, 120), Image.Resampling.BICUBIC).save(folder / f"{row}.png")
    with Image.open(folder / "3.png") as image:
        image.resize((90, 70)).save(folder / "7.png")
    places = [Place(path=str(folder), kind="folder", root=str(folder))]
    vectors = rng.normal(size=(12, 4)).astype(np.float32)
    findings = find_issues(
        snapshot_of(tmp_path / "collection", vectors, np.arange(12) // 6, places=places)
    )
    assert [{each.row, *each.neighbors} for each in findings.found if each.kind == "duplicate"] == [
        {3, 7}
    ]
    assert any("planted" in sentence for sentence in findings.words)


HOSTILE = '<script>alert(1)</script>",=1+1\n'


def test_hostile_names_stay_names(tmp_path):
    vectors, labels = bunches(classes=2)
    names = [HOSTILE if label else "a" for label in labels]
    names[3], paths = HOSTILE, [f"{row}.png" for row in range(40)]
    paths[3] = f"{HOSTILE}/3.png"
    snapshot = snapshot_of(tmp_path / "collection", vectors, names, paths)
    findings = find_issues(snapshot)
    rows = list(csv.DictReader(StringIO(findings_table(snapshot, findings))))
    assert list(rows[0]) == ["row", "path", "label", "kind", "score", "suggested", "neighbors"]
    (row,) = (row for row in rows if row["kind"] == "label")
    assert (row["row"], row["path"], row["label"], row["suggested"]) == (
        "3",
        paths[3],
        HOSTILE,
        "a",
    )
    assert set(row["neighbors"].split("|")) <= set(paths[:20])
    page = as_page(snapshot, findings_contents(snapshot, findings), "findings.csv")
    assert "<script>" not in page and "&lt;script&gt;" in page and "probable label errors" in page


def test_nothing_found_is_said(tmp_path):
    snapshot = snapshot_of(tmp_path / "collection", *bunches(apart=40.0))
    page = as_page(snapshot, findings_contents(snapshot, find_issues(snapshot)), "findings.csv")
    assert "Nothing was found." in page


# -- decisions
# ----------------------------------------------------------------------------------------------------


@pytest.fixture
def reviewed(tmp_path):
    """Six things with labels a and b, one without, metadata of one."""
    return snapshot_of(
        tmp_path / "collection",
        np.eye(7, dtype=np.float32),
        [*"aabbab", None],
        metadata={1: {"split": "test"}},
    )


def applied(reviewed, tmp_path, text, **settings):
    (tmp_path / "decisions.csv").write_text(text)
    made = apply_decisions(reviewed, tmp_path / "decisions.csv", **settings)
    rows = list(csv.DictReader(StringIO(made.table)))
    return {row["path"]: row["label"] for row in rows}, made.changed, made.dropped, rows


def test_decisions_relabel_and_drop(reviewed, tmp_path):
    text = "path,label\n0.png,b\n1.png,\n4.png,a\n6.png,b\n"
    labels, changed, dropped, rows = applied(reviewed, tmp_path, text)
    assert labels == {
        "0.png": "b",
        "2.png": "b",
        "3.png": "b",
        "4.png": "a",
        "5.png": "b",
        "6.png": "b",
    }
    assert (changed, dropped) == (2, 1) and list(rows[0]) == ["path", "label", "split"]


@pytest.mark.parametrize("label", ["drop", "keep"])
def test_a_class_named_drop_or_keep_is_a_class(label, reviewed, tmp_path):
    """Such an item was dropped, and such a new label ignored."""
    text = f"path,label\n1.png,{label}\n"
    assert applied(reviewed, tmp_path, text, new_labels=True)[0]["1.png"] == label
    with pytest.raises(DataError, match=f"unknown label '{label}'.*an empty label drops"):
        applied(reviewed, tmp_path, text)


def test_pictures_are_named_by_their_files(tmp_path):
    (tmp_path / "pictures").mkdir()
    places = [
        Place(path=str(tmp_path / "pictures"), kind="folder", root=str(tmp_path / "pictures"))
    ]
    snapshot = snapshot_of(
        tmp_path / "collection", np.eye(2, dtype=np.float32), "ab", ["a/0.png", "b/1.png"], places
    )
    assert applied(snapshot, tmp_path, "path,label\na/0.png,b\n")[0] == {
        str(tmp_path / "pictures/a/0.png"): "b",
        str(tmp_path / "pictures/b/1.png"): "b",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "path,label\n0.png,b\nnowhere.png,a\n",
            r"decisions.csv, line 3: 'nowhere.png' .* has no such",
        ),
        ("path,label\n0.png,robin\n", r"line 2: .*'robin'.*--new-labels"),
        ("path,label\n0.png,b\n0.png,a\n", "line 3: '0.png' is already in line 2"),
        ("path,label\n,b\n", "line 2: `path` is empty"),
        ("path,lable\n0.png,b\n", "did you mean 'lable'|lable"),
        ("0.png,b\n", "path"),
    ],
)
def test_decisions_that_make_no_sense_name_their_row(text, message, reviewed, tmp_path):
    with pytest.raises(DataError, match=message):
        applied(reviewed, tmp_path, text)


def test_a_path_that_two_places_hold_is_not_decided_on(tmp_path):
    snapshot = snapshot_of(
        tmp_path / "collection", np.eye(2, dtype=np.float32), "ab", ["x.png", "x.png"]
    )
    with pytest.raises(DataError, match="holds it in 2 places"):
        applied(snapshot, tmp_path, "path,label\nx.png,b\n")


def test_new_labels_are_allowed_where_asked_for(reviewed, tmp_path):
    assert applied(reviewed, tmp_path, "path,label\n0.png,robin\n1.png,\n", new_labels=True)[
        :3
    ] == (
        {"0.png": "robin", "2.png": "b", "3.png": "b", "4.png": "a", "5.png": "b"},
        1,
        1,
    )


# -- what to label next
# -------------------------------------------------------------------------------------------


def test_what_is_far_from_labels_and_stands_for_many_comes_first():
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0], [10, 0], [0, 10], [30, 30]])
    pool = np.concatenate(
        [c + 0.3 * rng.normal(size=(n, 2)) for c, n in zip(centers, (20, 30, 15, 1), strict=True)]
    )
    known = np.concatenate(
        [centers[0] + 0.3 * rng.normal(size=(6, 2)), 50 + 0.3 * rng.normal(size=(6, 2))]
    )
    found = suggest(pool.astype(np.float32), known.astype(np.float32), np.repeat([0, 1], 6), 3)
    groups = np.repeat([0, 1, 2, 3], (20, 30, 15, 1))[found.rows]
    assert groups.tolist() == [
        1,
        2,
        3,
    ]  # the largest unknown bunch, the next, the lone one; never what is known
    assert (np.diff(found.gains) <= 0).all() and found.expected[1] > found.expected[0]
    assert found.known.max() < 0.5


def test_the_chosen_are_those_of_the_printed_sum(monkeypatch):
    """Greedy maximization of F(S), recomputed for every candidate; all pairs within reach."""
    rng = np.random.default_rng(1)
    pool, known = (
        rng.normal(size=(30, 3)).astype(np.float32),
        rng.normal(size=(10, 3)).astype(np.float32),
    )
    labels = np.arange(10) % 3
    p = module._calibrated(torch.from_numpy(known), torch.from_numpy(labels), "euclidean")
    far = np.linalg.norm(pool[:, None].astype(np.float64) - pool, axis=2)
    covered, chosen = p(np.linalg.norm(pool[:, None] - known, axis=2).min(axis=1)), []
    for _ in range(5):
        gains = [-1 if i in chosen else np.maximum(p(far[i]), covered).sum() for i in range(30)]
        chosen.append(int(np.argmax(gains)))
        covered = np.maximum(covered, p(far[chosen[-1]]))
    assert suggest(pool, known, labels, 5).rows.tolist() == chosen


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]])
def test_labels_of_one_class_or_one_of_each_still_calibrate(labels):
    found = suggest(
        np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:3] + 0.1, np.array(labels), 4
    )
    assert sorted(found.rows.tolist()) == [0, 1, 2, 3] and np.isfinite(found.gains).all()


def test_more_than_there_are_or_nothing_labeled_is_an_error():
    with pytest.raises(DataError, match="1 to 4 can be chosen; got --k 5"):
        suggest(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32), np.arange(4), 5)
    with pytest.raises(DataError, match="got 0"):
        suggest(np.eye(4, dtype=np.float32), np.empty((0, 4), np.float32), np.empty(0, np.int64), 1)


def test_suggestions_are_a_table_to_fill_in_and_a_page(tmp_path):
    vectors, labels = bunches(classes=3)
    known = snapshot_of(tmp_path / "known", vectors[:20], labels[:20])
    pool = snapshot_of(
        tmp_path / "pool", vectors[20:], [None] * 40, [f"{HOSTILE}{row}" for row in range(40)]
    )
    chosen = choose(pool, known, 2)
    rows = list(csv.DictReader(StringIO(suggestions_table(pool, chosen))))
    assert list(rows[0]) == ["path", "label", "known", "gain"] and [
        row["label"] for row in rows
    ] == ["", ""]
    assert {row["path"] for row in rows} == {pool.items()[row].path for row in chosen.rows}
    places = [Place(path=str(tmp_path), kind="folder", root=str(tmp_path))]
    files = snapshot_of(tmp_path / "files", vectors[20:], [None] * 40, places=places)
    path = next(csv.DictReader(StringIO(suggestions_table(files, chosen))))["path"]
    assert path == str(tmp_path / f"{chosen.rows[0]}.png")  # as in a corrected table
    page = as_page(pool, suggestions_contents(pool, chosen), "suggestions.csv")
    assert "2 items to label" in page and "<script>" not in page
