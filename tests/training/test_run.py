"""Runs: what they write, how they stop, and that a killed one goes on as if nothing had
happened."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from tests.training.conftest import embedder_state, steps_of

from vicinal.api import Run
from vicinal.data import own_data
from vicinal.errors import ConfigError, DivergenceError, RunError
from vicinal.evaluation import evaluate
from vicinal.evaluation.encoder import Encoder
from vicinal.retrieval.calibration import calibration
from vicinal.run_directory import RunDirectory
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from vicinal.training.console import Console, sparkline
from vicinal.training.experiment import Judge, Judged, Verdict
from vicinal.training.finish import measure_run
from vicinal.training.run import resume, start


@pytest.fixture
def finished(tmp_path, once, begin):
    """A finished run of the tiny experiment to look at or to spoil: trained once, copied for each
    test."""
    if not once.exists():
        begin(once)
    shutil.copytree(once, tmp_path / "finished")
    return RunDirectory.open(tmp_path / "finished")


def test_a_run_writes_what_the_format_promises(finished):
    run = finished
    assert run.status["state"] == "finished"
    assert run.config["title"] == "breakable:Breakable on tiny"
    assert run.config["slots"]["training"]["epochs"] == 3
    assert run.config["own"] == ["loss"]
    assert run.info["data"]["counts"]["test"] == {"records": 96, "classes": 8}
    steps = [*run.metrics("step")]
    assert [line["step"] for line in steps] == list(range(len(steps)))
    assert {"loss", "active", "spread"} <= steps[0].keys()
    looks = [line["split"] for line in run.metrics("evaluation")]
    assert looks == ["validation"] * 4  # the start competes; the test classes choose nothing
    rows = Run(run.path).results
    assert {"recall@1", "map@r", "nmi", "ami", "f1"} <= rows["trained"].keys()
    assert rows["untrained"]["recall@1"] > 0
    assert run.arrays("map")["position"].shape[1] == 2
    assert not list(run.path.rglob("*.part"))


def test_pairs_within_a_distance_are_those_of_the_test_records(finished):
    test = Encoder.load(finished).embed(own_data(finished)[1].part("test"))
    distances = torch.pdist(test.vectors.double()).numpy()
    first, second = np.triu_indices(len(test.labels), 1)
    same = (test.labels[first] == test.labels[second]).numpy()
    found = finished.arrays("thresholds")
    for distance, *shares in zip(
        *(found[key] for key in ("distance", "same", "different")), strict=True
    ):
        within = distances < distance
        expected = [within[same].mean(), within[~same].mean()]
        assert shares == pytest.approx(expected, abs=2 / (~same).sum())


def test_the_selected_model_is_the_best_on_validation_not_the_last(begin, monkeypatch):
    scripted = iter((0.2, 0.5, 0.9, 0.4, 0.6))  # of the start and of four epochs

    def judged(judge, encoder):
        score = next(scripted)
        return Judged(Verdict((score, score), (1, 1)), {"recall@1": 1.0, "map@r": score})

    monkeypatch.setattr(Judge, "__call__", judged)
    run = begin("run", "training.epochs=4")
    looks = [*run.metrics("evaluation")]
    selected = run.results["selected"]
    assert selected["by"] == "validation map@r" and selected["value"] == 0.9
    assert selected["step"] == looks[2]["step"] < looks[-1]["step"]
    assert selected["above"]["the start"]["mean"] == pytest.approx(0.7)
    assert selected["above"]["the last step"]["mean"] == pytest.approx(0.3)


def test_without_validation_classes_the_last_model_is_selected(begin):
    run = begin("run", "training.validation=0")
    last = embedder_state(load_checkpoint(latest_checkpoint(run.checkpoints_path)))
    weights = load_file(run.weights_path)
    assert all(torch.equal(weights[name], last[name]) for name in weights)


@pytest.mark.slow
def test_kill_minus_nine_in_mid_epoch_changes_nothing(tiny, tmp_path, begin, again):
    """A real process, killed at an arbitrary moment, twice; parameters and metrics must be the
    unbroken run's."""
    whole = begin("whole", "loss.noisy=true", "training.epochs=4")
    path = tmp_path / "killed"
    settings = ["loss.noisy=true", "training.epochs=4", "loss.slow=0.05"]
    resumed = ["--resume", str(path), "--trust", "breakable:Breakable"]
    for words in (tiny.words(*settings, "--run", str(path)), resumed):
        command = [sys.executable, "-m", "vicinal", "train", *words, "--quiet", "--no-report"]
        process = subprocess.Popen(command)
        before = steps_of(path)
        while steps_of(path) < before + 3 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert steps_of(path) < steps_of(whole.path), "the process was to be killed before its end"
    again(path)
    killed = RunDirectory.open(path)
    assert killed.metrics_path.read_bytes() == whole.metrics_path.read_bytes()
    assert killed.weights_path.read_bytes() == whole.weights_path.read_bytes()
    a, b = (
        load_checkpoint(latest_checkpoint(run.checkpoints_path))["method"]
        for run in (killed, whole)
    )
    torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert killed.results["rows"] == whole.results["rows"]


@pytest.mark.slow(10)
def test_ctrl_c_stops_between_steps_and_says_how_to_go_on(finished, tiny, tmp_path, again):
    path = tmp_path / "run"
    words = tiny.words(
        "loss.slow=0.05", "training.checkpoint_seconds=1000", "--run", str(path), "--no-report"
    )
    command = [sys.executable, "-m", "vicinal", "train", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while steps_of(path) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"vicinal train --resume {path}" in said
    assert RunDirectory.open(path).status["state"] == "interrupted"
    done = load_checkpoint(latest_checkpoint(path / "checkpoints"))["position"]["step"]
    assert done == steps_of(path) > 0
    again(path)
    assert (path / "metrics.jsonl").read_bytes() == finished.metrics_path.read_bytes()


def test_a_run_killed_before_its_first_checkpoint_starts_over(begin, again):
    """Also where the loss draws from torch's generator and weights are averaged from the first head
    on."""
    settings = ["loss.noisy=true", "model.start=principal", "training.ema=0.9", "training.epochs=1"]
    run = begin("run", *settings)
    whole = run.metrics_path.read_bytes()
    weights = run.weights_path.read_bytes()
    shutil.rmtree(run.checkpoints_path)
    run.model_path.unlink()
    run.weights_path.unlink()
    run.write_status("running")
    with pytest.raises(RunError, match=f"It stopped: `vicinal train --resume {run.path}` goes on"):
        Encoder.load(run)
    again(run.path)
    assert run.metrics_path.read_bytes() == whole and run.weights_path.read_bytes() == weights


def test_a_folder_in_use_is_rejected_before_data_are_read(tmp_path, monkeypatch, begin):
    monkeypatch.setattr(
        "vicinal.training.run.prepare", lambda *arguments: pytest.fail("data were read")
    )
    (tmp_path / "precious").write_text("x")
    with pytest.raises(RunError, match="not an empty folder"):
        begin(tmp_path)


def test_a_finished_run_is_not_measured_again(finished, tiny, capsys):
    before = {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")}
    resume(finished.path, trust=tiny.trust, console=Console())
    assert "is finished" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")} == before


def test_a_nan_stops_with_step_files_and_checkpoint_named(tmp_path, begin):
    with pytest.raises(
        DivergenceError, match=r"step 4: loss = nan.*row 24.*step-00000004"
    ) as caught:
        begin("run", "loss.explode_at=4")
    assert "learning rate" in str(caught.value)
    assert RunDirectory.open(tmp_path / "run").status["state"] == "failed"


def test_collapse_is_reported(finished, tiny, begin):
    """Equal inputs give equal embeddings, whatever the network."""
    labels = np.repeat(np.arange(16), 12)
    np.savez(
        tiny.folder / "tiny.npz", features=np.ones((len(labels), 8), np.float32), labels=labels
    )
    run = begin("run")
    events = [line["message"] for line in run.metrics("event")]
    assert len(events) == 3 and all(message.startswith("collapse:") for message in events)
    assert not [*finished.metrics("event")]


def test_code_of_the_users_own_only_runs_when_the_user_names_it(finished, console):
    with pytest.raises(RunError, match=r"--trust breakable:Breakable"):
        resume(finished.path, console=console)


def first_number(embeddings, labels):
    return embeddings[:, 0]


def test_a_score_of_the_users_own_selects_and_resumes_where_it_is_named(tiny, tmp_path, console):
    config = tiny.config("loss=multi_similarity", "training.epochs=2")
    config = config.replace(training={"select": first_number})
    run = start(config, tmp_path / "run", command="test", console=console)
    looks = [line["metrics"] for line in run.metrics("evaluation")]
    best = max(look["first_number"] for look in looks)
    assert run.results["selected"]["value"] == pytest.approx(best)
    assert run.results["selected"]["by"] == "validation first_number"
    name = f"{first_number.__module__}:first_number"
    before = run.metrics_path.read_bytes()
    run.write_status("running")
    with pytest.raises(RunError, match=f"--trust {name}"):
        resume(run.path, console=console)
    resume(run.path, console=console, trust={name: first_number})
    resume(run.path, console=console, own={"training": {"select": first_number}})
    assert run.metrics_path.read_bytes() == before


@pytest.mark.parametrize(("length", "steps"), [("epochs=1", 6), ("steps=7", 7)])
def test_a_run_without_own_code_resumes_by_its_name_alone_also_in_mid_epoch(
    length, steps, begin, console
):
    run = begin("run", "loss=multi_similarity", f"training.{length}")
    found = [line["step"] for line in run.metrics("step")]
    assert found == list(range(steps))
    before = run.metrics_path.read_bytes()
    run.write_status("running")
    resume(run.path, console=console)
    assert run.metrics_path.read_bytes() == before


def test_a_finished_run_trains_longer_and_as_if_it_had_been_that_long(begin, again):
    words = "loss.noisy=true", "optimizer.schedule=constant"
    run = begin("run", "training.epochs=2", *words)
    longer = {"training": {"epochs": "3"}}
    again(run.path, own=longer)
    whole = begin("whole", *words)
    assert run.config["slots"]["training"]["epochs"] == 3
    assert run.metrics_path.read_bytes() == whole.metrics_path.read_bytes()
    assert run.weights_path.read_bytes() == whole.weights_path.read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"training": {"epochs": 3}}, r"longer than its training\.epochs=3"),
        ({"training": {"steps": 500}}, "keeps its settings"),
        ({"training": {"epochs": 4, "seed": 1}}, "keeps its settings"),
        ({"optimizer": {"learning_rate": 1.0}}, r"model\.weights=RUN"),
    ],
)
def test_nothing_else_of_a_run_changes(finished, given, said, again):
    with pytest.raises(ConfigError, match=said):
        again(finished.path, own=given)


def test_patience_stops_and_keeps_the_best(begin):
    settings = ["training.epochs=40", "training.patience=2", "optimizer.learning_rate=1e-9"]
    run = begin("run", "loss=multi_similarity", *settings)
    scores = [line["metrics"]["map@r"] for line in run.metrics("evaluation")]
    # Nothing moves: two without improvement on the start.
    assert len(scores) == 3 and run.results["selected"]["step"] == 0


def test_when_time_is_up_training_ends_and_is_measured(tiny, tmp_path, console):
    config = tiny.config("training.epochs=40", "training.validation=0")
    run = start(config, tmp_path / "run", command="test", console=console, until=0.0)
    assert run.status["state"] == "finished" and run.status["step"] == 1
    assert run.results["selected"]["step"] == 1 and "trained" in [
        row["name"] for row in run.results["rows"]
    ]


def test_changed_data_are_named_and_data_that_training_never_saw_are_measured_whole(
    tiny, console, begin, again
):
    run = begin("run", "training.epochs=1", "evaluation.artifacts=false")
    file = tiny.folder / "tiny.npz"
    arrays = dict(np.load(file))
    how = {"recalls": (1,), "clustering": False, "device": torch.device("cpu")}
    how |= {"skip_corrupt": False, "console": console, "split": None}
    own = measure_run(run, data=None, **how)
    assert (own["split"], own["records"]) == ("test", 96)
    half = measure_run(run, data=str(file), **how)
    assert half["records"] == 96 and half["notes"] == ["96 records that training saw are left out."]

    features = arrays["features"].copy()
    labels = arrays["labels"]
    features[5] += 1
    more = np.concatenate([arrays["features"], np.ones((4, 8), np.float32)])
    names = r"row 192, row 193, row 194, \.\.\."
    for changed, fault in (
        ({"features": features}, r"1 records of another class, content or split \(row 5\)"),
        ({"labels": np.roll(labels, 1)}, "16 records of another class"),
        (
            {"features": more, "labels": np.append(labels, np.full(4, 16))},
            rf"4 records added \({names}\)",
        ),
    ):
        np.savez(file, **arrays | changed)
        run.write_status("interrupted")
        with pytest.raises(RunError, match=f"changed since it began: {fault}"):
            again(run.path)
        with pytest.raises(RunError, match=fault):
            measure_run(run, data=None, **how)
        with pytest.raises(RunError, match=fault):
            calibration(run)  # for --max-false-match
    np.savez(file, features=arrays["features"] + 1, labels=labels)
    new = measure_run(run, data=str(file), **how)
    assert (new["split"], new["records"], new["notes"]) == ("unseen", 192, [])


def test_a_resumed_run_leaves_alone_what_is_written_into_its_collection(finished, again):
    index = finished.path / "collection" / ".generation.x.part"
    index.parent.mkdir()
    index.touch()
    left = finished.path / ".run.json.x.part"
    left.touch()
    finished.write_status("interrupted")
    again(finished.path)
    assert index.exists() and not left.exists()


def test_two_processes_cannot_train_one_run(finished, again):
    finished.write_status("running")
    assert finished.status["state"] == "interrupted", "nobody holds its lock: it was killed"
    with FileLock(finished.path / ".lock"):
        assert finished.status["state"] == "running"
        with pytest.raises(RunError, match="another process"):
            again(finished.path)


@pytest.mark.parametrize(
    "damage", [lambda found: found["config"].update(slots=1.5), lambda found: found.pop("config")]
)
def test_a_damaged_run_names_the_file(finished, damage, again):
    document = finished.info
    damage(document)
    finished.info_path.write_text(json.dumps(document))
    finished.write_status("running")
    with pytest.raises(RunError, match=r"run\.json"):
        again(finished.path)


@pytest.mark.parametrize("state", [{"position": {"x": 1}}, {}, []])
def test_a_damaged_checkpoint_is_named(finished, state, again):
    finished.write_status("running")
    for path in finished.checkpoints_path.iterdir():
        save_checkpoint(path.parent, int(path.stem.removeprefix("step-")), state)
    with pytest.raises(RunError, match=r"step-\d+\.safetensors is damaged"):
        again(finished.path)


def test_loading_a_model_executes_nothing_from_the_run(finished):
    run = finished
    Encoder.load(run)
    document = json.loads(run.model_path.read_text())
    document["embedder"]["backbone"] = {"class": "os.system", "command": "touch hacked"}
    run.model_path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"unknown class 'os\.system'"):
        Encoder.load(run)


def test_weights_that_do_not_fit_are_rejected(finished):
    run = finished
    document = json.loads(run.model_path.read_text())
    document["embedder"]["dim"] = 5
    run.model_path.write_text(json.dumps(document))
    with pytest.raises(RunError, match="does not fit"):
        Encoder.load(run)


def test_a_run_and_evaluate_give_the_same_scores(finished):
    settings = finished.settings
    (_, records) = own_data(finished)
    embedded = Encoder.load(finished).embed(records.part("test"))
    found = evaluate(
        embedded.vectors,
        embedded.labels,
        recalls=settings["recalls"],
        seed=settings["seed"],
        restarts=settings["restarts"],
    )
    trained = next(row for row in finished.results["rows"] if row["name"] == "trained")
    spread = {f"{name}_spread": value for name, value in trained["spread"].items()}
    assert trained["metrics"] | spread == pytest.approx(found) and "nmi" in found
    assert trained["spread"].keys() == ({"nmi", "ami", "f1"} if settings["restarts"] > 1 else set())


def test_a_run_without_artifacts_keeps_what_a_comparison_needs(finished, begin):
    bare = begin("bare", "evaluation.artifacts=false")
    whole = finished.results
    for row in whole["rows"]:
        if row["name"] == "untrained":  # of which retrieval alone is measured
            row["metrics"] = {k: v for k, v in row["metrics"].items() if k not in row["spread"]}
            for clustering in ("nmi", "ami", "f1"):
                row["metrics"].pop(clustering, None)
            row["spread"] = {}
    assert bare.results["rows"] == whole["rows"] and bare.results["gains"] == whole["gains"]
    written = bare.arrays("by_class")
    rows = Run(bare.path).results
    assert written["hits"].sum() / written["queries"].sum() == pytest.approx(
        rows["trained"]["recall@1"]
    )
    kept = {"by_class.npz", "diagnostics.json", "captions.json"}
    assert {path.name for path in bare.artifacts_path.iterdir()} == kept


@pytest.mark.slow(10)
def test_training_does_without_torchs_compiler(tiny, tmp_path):
    """Importing it takes as long as importing torch."""
    code = (
        "from vicinal.cli.main import run\nimport atexit, sys\natexit.register(lambda: "
        "print(*sys.modules))\nrun()"
    )
    words = tiny.words(
        "method=hdml", "loss=triplet", "--run", str(tmp_path / "run"), "--quiet", "--no-report"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (
        "vicinal.methods.hdml" in done.stdout.split() and "torch._dynamo" not in done.stdout.split()
    )


def test_a_look_says_which_step_is_chosen_and_draws_the_scores(tiny, tmp_path, capsys):
    config = tiny.config("loss=multi_similarity", "training.epochs=3")
    run = start(config, tmp_path / "run", command="test", console=Console())
    lines = [line for line in capsys.readouterr().err.splitlines() if "validation MAP@R" in line]
    looks = [row["metrics"]["map@r"] for row in run.metrics("evaluation")]
    steps = [row["step"] for row in run.metrics("evaluation")]
    assert len(lines) == len(looks) == 4
    for place, line in enumerate(lines):
        so_far = looks[: place + 1]
        best = max(so_far)
        told = (
            "best so far"
            if looks[place] == best
            else (f"best {100 * best:.1f} at step {steps[so_far.index(best)]}")
        )
        assert line.endswith(f"({told})  {sparkline(so_far)}")
