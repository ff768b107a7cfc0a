"""``vicinal clean`` and ``vicinal suggest``: what they write, what they leave as it is, what they
reject."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.conftest import table
from tests.runs import drawn_run

from vicinal.data import Arrays, FeatureTransform, Table
from vicinal.data.transforms import ImageTransform
from vicinal.models import Embedder, Identity
from vicinal.models.small import SmallConvNet


@pytest.fixture
def run(tmp_path):
    """A run on sixty feature vectors of three classes, of which the first has a wrong label."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 20)
    features = (8 * np.eye(6)[labels] + rng.normal(size=(60, 6))).astype(np.float32)
    labels[0] = 1
    names = np.array([f"{row}.png" for row in range(60)])
    np.savez(
        tmp_path / "data.npz",
        features=features,
        labels=np.array(["a", "b", "c"])[labels],
        names=names,
    )
    torch.manual_seed(0)
    data = Arrays(str(tmp_path / "data.npz"))
    run = drawn_run(tmp_path / "run", Embedder(Identity(6), 6), FeatureTransform(), data)
    return run


def test_findings_are_printed_and_written_and_the_data_stay(run, tmp_path, works):
    before = (tmp_path / "data.npz").read_bytes()
    done = works("clean run")  # which has no collection yet
    assert "then: review them with `vicinal serve run`" in done.stdout
    assert "probable label errors: 1" in done.stdout and "label" in done.stdout.splitlines()[3]
    first = table(run.path / "clean" / "findings.csv")[0]
    assert (first["path"], first["label"], first["kind"], first["suggested"]) == (
        "0.png",
        "b",
        "label",
        "a",
    )
    assert "0.png" in (run.path / "clean" / "findings.html").read_text()
    assert (run.path / "collection").is_dir() and (tmp_path / "data.npz").read_bytes() == before


@pytest.mark.parametrize("numbered", [False, True])
def test_decisions_on_vectors_become_arrays_that_train(numbered, run, tmp_path, works):
    held = dict(np.load(tmp_path / "data.npz"))
    held["splits"] = np.where(held["labels"] == "c", "test", "train")
    held["classes"], numbers = np.unique(held["labels"], return_inverse=True)
    if numbered:  # as `vicinal embed` writes them
        held["labels"] = numbers
    np.savez(tmp_path / "data.npz", **held)
    (tmp_path / "decisions.csv").write_text("path,label\n0.png,a\n5.png,\n")
    done = works("clean run --apply decisions.csv")
    assert "train --data run/clean/labels.npz" in done.stdout
    assert "1 relabeled, 1 dropped" in done.stdout
    # The run's own table is made anew.
    works("clean run --apply decisions.csv")
    rows = table(run.path / "clean" / "labels.csv")
    assert len(rows) == 59 and (rows[0]["path"], rows[0]["label"]) == ("0.png", "a")
    made = Arrays(str(run.path / "clean" / "labels.npz")).load()
    assert (
        len(made) == 59 and made.classes[made.labels[0]] == "a" and made.source.name(5) == "6.png"
    )
    np.testing.assert_array_equal(made.source.read(5), held["features"][6])
    assert set(made.part("test").labels) == {made.classes.index("c")}
    assert len(np.load(tmp_path / "data.npz")["labels"]) == 60  # the data stay


def test_numbers_stay_numbers_for_other_rows_would_be_for_testing(run, tmp_path, works):
    held = dict(np.load(tmp_path / "data.npz"))
    np.savez(tmp_path / "other.npz", features=held["features"], labels=np.repeat([2, 10, 3], 20))
    (tmp_path / "decisions.csv").write_text("path,label\nrow 0,10\nrow 1,\n")
    works("clean run other.npz --apply decisions.csv --to made")
    labels = np.load(tmp_path / "made" / "labels.npz")["labels"]
    assert labels.dtype.kind == "i" and labels[:2].tolist() == [10, 2] and len(labels) == 59
    for label in ("007", "²", "--5", str(10**20)):  # 007 became 7, others ended in a traceback
        (tmp_path / "decisions.csv").write_text(f"path,label\nrow 0,{label}\n")
        words = ("--apply", "decisions.csv", "--to", f"to {label}")
        works("clean run other.npz", *words)
        made = np.load(tmp_path / f"to {label}" / "labels.npz")["labels"]
        assert made[0] == label and made[1] == "2"


def test_a_run_on_a_corrected_table_is_indexed_and_cleaned_again(run, vicinal, tmp_path, works):
    """Its pictures lie outside the folder of the table, where training has read them."""
    rng = np.random.default_rng(0)
    lines = ["path,label,split"]
    for number in range(12):
        path = tmp_path / "pictures" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(path)
        lines.append(f"{path},{'ab'[number % 2]},{'test' if number > 5 else 'train'}")
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "labels.csv").write_text("\n".join(lines))
    table = Table(str(tmp_path / "clean" / "labels.csv"))
    transform = ImageTransform(size=8, resize=8, channels=1)
    drawn_run(tmp_path / "other", Embedder(SmallConvNet(1, (4, 4)), 4), transform, table)
    shutil.rmtree(run.path)
    (tmp_path / "other").rename(run.path)
    done = works("index run --split test --collection tested")
    assert "6 items" in done.stdout
    done = works("clean run")
    assert "of 12 labels" in done.stdout
    assert vicinal("index run").returncode == 0  # again, from what the collection knows
    done = vicinal("search run pictures/3.png --k 1")
    assert "3.png" in done.stdout and str(tmp_path / "pictures" / "..") not in done.stdout, (
        done.stderr
    )


def test_named_data_are_looked_at_in_the_place_of_the_collection(run, tmp_path, works):
    rng = np.random.default_rng(1)
    for name in ("other", "third"):
        np.savez(
            tmp_path / f"{name}.npz", features=rng.normal(size=(12, 6)), labels=np.arange(12) % 2
        )
        done = works("clean run", f"{name}.npz", "--to", name)
        assert (tmp_path / name / "findings.csv").is_file()
        found = sum(row["kind"] == "label" for row in table(tmp_path / name / "findings.csv"))
        assert f"{found} of 12 labels are probably wrong" in done.stdout  # of this set alone
    assert not (run.path / "collection").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--apply", "decisions.csv"], "decisions.csv, line 2: 'x.png'"),
        (["run", "--apply", "nowhere.csv"], "nowhere.csv"),
        (["run", "data.npz", "--collection", "run/collection"], "Give one"),
    ],
)
def test_an_error_of_clean_is_one_message_and_nothing_is_written(
    words, message, run, tmp_path, rejected
):
    (tmp_path / "decisions.csv").write_text("path,label\nx.png,a\n")
    assert message in rejected("clean", *words)
    assert not (run.path / "clean").exists()


def test_a_table_that_was_cleaned_is_not_overwritten(run, vicinal, tmp_path):
    """Also where the table to correct has the name of the corrected one."""
    folder = run.path / "clean"
    folder.mkdir()
    (tmp_path / "decisions.csv").write_text("path,label\n0.png,a\n")
    os.link(tmp_path / "decisions.csv", folder / "labels.csv")
    done = vicinal("clean run --apply run/clean/labels.csv")
    assert done.returncode == 2 and "is there. Name another folder" in done.stderr


@pytest.mark.parametrize("labels", [{}, {"labels": np.zeros(15, int)}])
def test_what_to_label_next_is_written(labels, run, vicinal, tmp_path, works):
    rng = np.random.default_rng(2)
    pool = np.concatenate(
        [8 * np.eye(6)[0] + rng.normal(size=(10, 6)), -8 * np.eye(6)[0] + rng.normal(size=(5, 6))]
    )
    np.savez(tmp_path / "pool.npz", features=pool.astype(np.float32), **labels)
    works("suggest run pool.npz --k 2")
    rows = table(run.path / "suggest" / "suggestions.csv")
    assert (
        len(rows) == 2
        and int(rows[0]["path"].removeprefix("row ")) >= 10
        and rows[0]["label"] == ""
    )
    assert "What to label next" in (run.path / "suggest" / "suggestions.html").read_text()
    np.savez(tmp_path / "pool.npz", features=pool.astype(np.float32), names=np.arange(3))
    assert "15 rows, but `names` has 3." in vicinal("suggest run pool.npz").stderr
