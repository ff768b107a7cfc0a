"""``vicinal train``: slots on the command line, on a user's own data and in a file."""

import json
import re

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def pictures(tmp_path):
    """Seven classes of eight pictures of different sizes: too few for most batches."""
    rng = np.random.default_rng(0)
    for label in range(7):
        (tmp_path / "pictures" / f"c{label}").mkdir(parents=True)
        slope = rng.normal(size=2)
        colour = rng.normal(size=3)
        for number in range(8):
            down, across = (np.linspace(-1, 1, side) for side in rng.integers(34, 50, 2))
            grey = (
                128 + 60 * np.add.outer(slope[0] * down, slope[1] * across)[..., None] + 40 * colour
            )
            pixels = (grey + 10 * rng.normal(size=grey.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / f"c{label}" / f"{number}.jpg")
    return tmp_path / "pictures"


SMALL = [
    "transform.size=32",
    "transform.canvas=32",
    "transform.resize=32",
    "training.epochs=1",
    "training.workers=0",
]
SCRATCH = [
    "model=small",
    "model.widths=4,8",
    "transform.size=16",
    "transform.resize=16",
    "training.workers=0",
]


def saved(folder):
    return json.loads((folder / "run.json").read_text())


@pytest.mark.slow(10)
def test_few_classes_of_few_pictures_are_trained_without_a_preset(pictures, vicinal, tmp_path):
    done = vicinal("train", "--data", "pictures", *SMALL, "--run", "run", "--no-report")
    assert done.returncode == 0, done.stderr
    assert (
        "preset images" in done.stderr
        and "efficientnet_lite0" in done.stderr
        and "too few" in done.stderr
    )
    assert (
        "found   56 images in pictures: 24 of 3 classes to train on, 32 of 4 classes to test on"
        in done.stderr
    )
    assert re.search(r"time    \d+ steps of 12 rows, about \d+ s on this cpu", done.stderr)
    assert "result  run/report.html" in done.stderr
    for words in (["index", "run", "--split", "test"], ["search", "run", "--id", "0"]):
        assert f" vicinal {' '.join(words)}\n" in done.stderr
        assert (tried := vicinal(*words)).returncode == 0, tried.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["name"] for row in results["rows"]][-3:] == ["untrained", "head start", "trained"]
    assert "3 classes x 4 samples instead of 16 classes x 4 samples" in "\n".join(results["notes"])
    config = saved(tmp_path / "run")["config"]
    assert config["preset"] == "images" and config["slots"]["training"]["validation"] == 0


def test_the_head_alone_is_a_baseline_in_seconds(pictures, vicinal, tmp_path):
    done = vicinal(
        "train",
        "--data",
        "pictures",
        *SCRATCH,
        "model.dim=8",
        "--head-only",
        "--run",
        "run",
        "--no-report",
    )
    assert done.returncode == 0, done.stderr
    assert (
        "no step is trained" in done.stderr and not (tmp_path / "run" / "metrics.jsonl").read_text()
    )
    config = saved(tmp_path / "run")["config"]
    assert (
        config["slots"]["training"]["head_only"]
        and config["slots"]["model"]["start"] == "discriminant"
    )


def test_vectors_are_trained_without_a_preset(vicinal, tmp_path):
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(20), 3))
    done = vicinal("train", "--data", "x.npz", "training.epochs=1", "--run", "run", "--no-report")
    assert done.returncode == 0 and "preset features" in done.stderr
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert "8 classes x 3 samples" in "\n".join(notes)
    # No wider than they are.
    done = vicinal("train", "--data", "x.npz", "--head-only", "--run", "head", "--no-report")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "slots",
    [
        ["loss=multi_similarity", "method=hdml"],
        ["loss=danml", "method=loop"],
        ["loss=triplet", "method=ala", "method.updates=1"],
        ["loss=proxy_anchor"],
    ],
    ids=" ".join,
)
def test_methods_and_losses_combine_on_ones_own_pictures(pictures, vicinal, tmp_path, slots):
    few = ["data.test=0.4", "training.epochs=1", "evaluation.artifacts=false"]
    done = vicinal(
        "train", "--data", "pictures", *SCRATCH, *few, *slots, "--run", "run", "--no-report"
    )
    assert done.returncode == 0, done.stderr
    found = saved(tmp_path / "run")["config"]["slots"]
    assert f"loss={found['loss']['name']}" == slots[0]


def test_without_test_classes_the_next_commands_take_all_pictures(pictures, vicinal):
    words = [*SCRATCH, "data.test=0", "training.steps=1", "--run", "run", "--no-report"]
    done = vicinal("train", "--data", "pictures", *words)
    assert done.returncode == 0, done.stderr
    assert "then    vicinal index run\n" in done.stdout + done.stderr


def test_a_file_of_slots_is_changed_by_words(pictures, vicinal, tmp_path):
    (tmp_path / "mine.toml").write_text(
        'data = "pictures"\nloss = { name = "triplet", margin = 0.3 }\n'
    )
    words = [*SCRATCH, "loss.margin=0.4", "training.steps=1", "--run", "run", "--no-report"]
    done = vicinal("train", "mine.toml", *words)
    assert done.returncode == 0, done.stderr
    config = saved(tmp_path / "run")["config"]
    assert config["preset"] == "mine" and config["slots"]["loss"]["margin"] == 0.4


def test_a_dry_run_prints_a_file_that_trains_the_same(pictures, vicinal, tmp_path):
    words = ["--data", "pictures", *SCRATCH, "loss=n_pair", "method=hdml", "training.steps=1"]
    done = vicinal("train", *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "1 steps of" in done.stdout and "parameters" in done.stdout and "MiB" in done.stdout
    assert not (tmp_path / "runs").exists()
    (tmp_path / "resolved.toml").write_text(done.stdout)
    for run, arguments in (("first", words), ("second", ["resolved.toml"])):
        assert vicinal("train", *arguments, "--run", run, "--no-report").returncode == 0
    first, second = (tmp_path / run / "model.safetensors" for run in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_data_may_stand_where_a_preset_does_but_once(pictures, vicinal):
    assert vicinal("train", "pictures", *SCRATCH, "--dry-run").returncode == 0
    done = vicinal("train", "pictures", "--data", "pictures")
    assert (
        done.returncode == 2
        and "pictures is data, and --data or data=... names other data" in done.stderr
    )


def test_a_combination_that_makes_no_sense_is_rejected_before_any_work(pictures, vicinal, tmp_path):
    done = vicinal(
        "train", "--data", "pictures", *SCRATCH, "loss=proxy_nca", "method=hdml", "--run", "run"
    )
    assert done.returncode == 2 and "HDML" in done.stderr and "Use a loss over pairs" in done.stderr
    assert not (tmp_path / "run").exists()
