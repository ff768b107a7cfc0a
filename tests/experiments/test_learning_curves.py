"""Runs of ``long_runs.py`` compose, and results of learning curves are compared pair by pair."""

import re
import runpy
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from vicinal.config import compose, from_words
from vicinal.training import trainer

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def curves():
    return runpy.run_path(str(FOLDER / "learning_curves.py"))


@pytest.fixture
def ran(monkeypatch):
    """What a file of experiments defines."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "learning_curves", raising=False)
    return lambda name: runpy.run_path(str(FOLDER / name))


@pytest.fixture
def best(ran):
    return ran("best_row.py")


def line(run, seed, step, test, train=0.5, **more):
    both = {
        "test": {"recall@1": test, "map@r": test / 2},
        "train": {"recall@1": train, "map@r": train / 2},
    }
    return {"run": run, "data": "cub", "seed": seed, "hold_out": 0.0, "step": step} | both | more


@pytest.mark.slow
@pytest.mark.parametrize("file", ["long_runs.py", "best_row.py"])
def test_runs_compose_under_names_of_their_own(file, ran):
    found = ran(file)
    runs = found["RUNS"]
    done = found.get("DONE", [])
    controls = ran("controls.py")
    trust = {f"controls:{name}": controls[name] for name in ("RandomWeights", "Summed")}
    assert len({run.title for run in runs}) == len(runs) and runs[len(runs) - len(done) :] == done
    for run in runs:
        words = (f"training.steps={run.steps}", "training.validation=0", *run.words.split())
        config = compose({"preset": run.preset}, from_words(words), trust=trust)
        if done:
            assert (config.training.compile == "on") == (run.data != found["FEATURES"]), run.title


def test_held_out_classes_choose_the_best_change_of_each_group(best):
    scores = {"base": 0.7, "Recall@k": 0.71, "InfoNCE": 0.72, "colors": 0.701, "erasing": 0.69}
    lines = [
        line(
            name,
            seed,
            1000,
            0.1,
            data="cub_288",
            hold_out=0.3,
            ended=True,
            held_out={"recall@1": held + seed / 10},
        )
        for name, held in scores.items()
        for seed in (0, 1)
    ]
    assert list(best["chosen"](lines, best["FIRST"])) == ["InfoNCE"] and not best["chosen"](
        lines, best["SECOND"]
    )
    words = {run.title: run.words for run in best["best_rows"](lines)}
    assert (
        "loss=info_nce" in words["cub_288, best row, seed 0"]
        and "loss.beta" not in words["cars_288, best row, seed 0"]
    )
    assert "model=efficientnet_lite2" in words["cub_288, best row, Lite2, seed 2"]


def read_run(curves, folder, words, evaluated=(0, 1)):
    """Train three steps on drawn pictures; return the evaluations that were written."""
    own = (
        "model=small model.widths=4,8 model.dim=4 sampler.classes=2 sampler.per_class=2 "
        "transform.size=16"
    )
    run = curves["Run"](
        "a", "pictures", "images_from_scratch", f"{own} {words}", 0, 3, 0.5, evaluated
    )
    curves["train"](run, folder, run.file(folder))
    return curves["read"](run.file(folder))


@pytest.mark.slow(8)
def test_a_run_writes_each_evaluation_and_measures_the_average_of_the_weights(
    curves, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(FOLDER))
    rng = np.random.default_rng(0)
    for number in range(24):
        folder = tmp_path / "pictures" / f"class{number // 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / f"{number}.png")
    monkeypatch.setattr("signal.signal", lambda number, stop: None)

    averaged = Mock(wraps=trainer.average_weights)
    monkeypatch.setattr(trainer, "average_weights", averaged)
    lines = read_run(curves, tmp_path, "training.ema=0.9")
    assert [call.args[3] for call in averaged.call_args_list] == [0, 1, 2]
    assert [(line["step"], line["ended"], "words" in line) for line in lines] == [
        (0, False, True),
        (1, False, False),
        (3, True, False),
    ]
    monkeypatch.setattr(trainer, "average_weights", lambda *_: None)  # stays the start
    kept = read_run(curves, tmp_path, "training.ema=0.9")
    assert len({str(line["train"]["map@r"]) for line in kept}) == 1
    assert all({"test", "train", "held_out"} <= line.keys() for line in lines)
    assert [line.get("scalars", {}).get("loss", 0) > 0 for line in lines] == [False, True, True]
    late = read_run(curves, tmp_path, "", evaluated=(2,))  # without step 0 a file begins anew, too
    assert [line["step"] for line in late] == [2, 3] and "words" in late[0]
    monkeypatch.setattr("signal.signal", lambda number, stop: stop(number, None))
    assert [line["step"] for line in read_run(curves, tmp_path, "")] == [0], (
        "stopped before the first step"
    )


def test_differences_are_of_seeds_that_reached_the_last_step_of_both(curves):
    lines = [line("A, x", seed, 10, 0.2 + 0.1 * seed) for seed in range(3)]
    lines += [line("A + B, x", seed, 10, 0.25 + 0.1 * seed, 0.4) for seed in range(1, 4)]
    lines += [line("A + B, x", 1, 5, 0.9)]
    text = list(curves["table"](lines))
    assert "| A + B, x | 3, 10 | 45.0 / 22.5 | +5.0 |" in text


def test_the_interval_over_three_seeds_is_students(curves):
    lines = [line("A", seed, 10, 0.2) for seed in range(3)]
    lines += [line("A + B", seed, 10, 0.2 + 0.01 * seed) for seed in range(3)]
    text = "\n".join(curves["table"](lines))
    assert "| +1.0 (-1.5 to +3.5) |" in text  # 1 ± 4.303 / sqrt 3


def test_each_of_the_readmes_comparisons_has_one_interval_everywhere(curves):
    """HDML's +15.0 had (+10.6 to +19.5) in the README and (+12.3 to +17.8) in five other places."""
    lines = curves["read"](FOLDER / "results" / "learning_curves.jsonl")
    rows = [row.strip("| ").split(" | ") for row in list(curves["comparisons"](lines))[2:]]
    assert len(rows) == 5 and all(float(p) < 0.05 for *_, p in rows)
    readme = FOLDER.parent / "README.md"
    for place in (1, 3, 4):  # the README has these in numbers
        assert rows[place][2].rstrip(")") in readme.read_text(encoding="utf-8")
    pages = [readme, *FOLDER.rglob("*.md"), *(FOLDER.parent / "docs").rglob("*.md")]
    others = {
        f"{path.name}: {found}"
        for path in pages
        for found in re.findall(r"\+15\.0\W{0,3}\(\+\d+\.\d to \+\d+\.\d", path.read_text("utf-8"))
        if not found.endswith("+10.6 to +19.5")
    }
    assert rows[1][2] == "+15.0 (+10.6 to +19.5)" and not others


def test_held_out_classes_choose_the_step(curves):
    scores = {0: (0.5, 0.8), 10: (0.6, 0.9), 20: (0.7, 0.7)}
    lines = [
        line("A", 0, step, test, hold_out=0.3, held_out={"recall@1": held, "map@r": 1 - held})
        for step, (test, held) in scores.items()
    ]
    assert "| cub, A | 1 | 70.0 / 35.0 | 60.0 / 30.0 |" in list(curves["selected"](lines))


def test_the_figure_is_drawn_from_the_results(curves, tmp_path):
    file = tmp_path / "curves.png"
    curves["plot"](curves["read"](FOLDER / "results" / "learning_curves.jsonl"), file)
    assert file.read_bytes().startswith(b"\x89PNG") and file.stat().st_size < 150_000
