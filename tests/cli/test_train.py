"""``vicinal train``: slots on the command line, on a user's own data and in a file."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from vicinal.cli.train import _worth


@pytest.fixture
def pictures(paint):
    """Too few for most batches."""
    return paint([f"c{label}" for label in range(7)], 8)


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
def test_few_classes_of_few_pictures_are_trained_without_a_preset(
    pictures, vicinal, tmp_path, works
):
    done = works("train --data pictures", *SMALL, "--run", "run", "--no-report")
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


def test_the_head_alone_is_a_baseline_in_seconds(pictures, tmp_path, works):
    done = works(
        "train --data pictures",
        *SCRATCH,
        "model.dim=8",
        "--head-only",
        "--run",
        "run",
        "--no-report",
    )
    assert (
        "no step is trained" in done.stderr and not (tmp_path / "run" / "metrics.jsonl").read_text()
    )
    config = saved(tmp_path / "run")["config"]
    assert (
        config["slots"]["training"]["head_only"]
        and config["slots"]["model"]["start"] == "discriminant"
    )


def test_vectors_are_trained_without_a_preset(tmp_path, works):
    features = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(20), 3))
    done = works("train --data x.npz training.epochs=1 --run run --no-report")
    assert "preset features" in done.stderr
    notes = json.loads((tmp_path / "run" / "results.json").read_text())["notes"]
    assert "8 classes x 3 samples" in "\n".join(notes)
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"`vicinal best {tmp_path / 'x.npz'} --minutes 5`")
    assert last.endswith("worth it here: no held-out class says that this training helped")
    results = {"selected": {"step": 7, "above": {"the start": {"mean": 0.05, "low": 0.01}}}}
    run = SimpleNamespace(config={"slots": {"data": {"name": "glyphs"}}}, status={"seconds": 99})
    assert "vicinal best glyphs --minutes 33` tries" in _worth(run, results)
    assert "worth it where half a point" in _worth(run, results)
    assert _worth(run, results).startswith("`training.validation=0 training.steps=7` after this")
    # No wider than they are.
    works("train --data x.npz --head-only --run head --no-report")


def test_without_test_classes_the_next_commands_take_all_pictures(pictures, works):
    words = [*SCRATCH, "data.test=0", "training.steps=1", "--run", "run", "--no-report"]
    done = works("train --data pictures", *words)
    assert "then    vicinal index run\n" in done.stdout + done.stderr


def test_a_file_of_slots_is_changed_by_words(pictures, tmp_path, works):
    (tmp_path / "mine.toml").write_text(
        'data = "pictures"\nloss = { name = "triplet", margin = 0.3 }\n'
    )
    words = [*SCRATCH, "loss.margin=0.4", "training.steps=1", "--run", "run", "--no-report"]
    works("train mine.toml", *words)
    config = saved(tmp_path / "run")["config"]
    assert config["preset"] == "mine" and config["slots"]["loss"]["margin"] == 0.4


def test_a_dry_run_prints_a_file_that_trains_the_same(pictures, tmp_path, works):
    words = ["--data", "pictures", *SCRATCH, "loss=n_pair", "method=hdml", "training.steps=1"]
    done = works("train", *words, "--dry-run")
    assert "1 steps of" in done.stdout and "parameters" in done.stdout and "MiB" in done.stdout
    assert not (tmp_path / "runs").exists()
    (tmp_path / "resolved.toml").write_text(done.stdout)
    for run, arguments in (("first", words), ("second", ["resolved.toml"])):
        works("train", *arguments, "--run", run, "--no-report")
    first, second = (tmp_path / run / "model.safetensors" for run in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_data_may_stand_where_a_preset_does_but_once(pictures, vicinal, works):
    works("train pictures", *SCRATCH, "--dry-run")
    done = vicinal("train pictures --data pictures")
    assert (
        done.returncode == 2
        and "pictures is data, and --data or data=... names other data" in done.stderr
    )
