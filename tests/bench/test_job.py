"""A job trains, resumes and measures; each protocol does what it says."""

import json
import shutil
from dataclasses import replace

import pytest

from vicinal.bench import job as jobs
from vicinal.bench.code import fingerprint
from vicinal.bench.job import Job, perform
from vicinal.bench.measuring import readings
from vicinal.bench.run import adopt, collect
from vicinal.bench.tables import BASELINES
from vicinal.errors import ConfigError, DivergenceError, RunError
from vicinal.evaluation import artefacts
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import start
from vicinal.training.trainer import Trainer


@pytest.fixture(autouse=True)
def no_map(monkeypatch):
    """t-SNE costs more than all else here and has no part in a result."""
    monkeypatch.setattr(artefacts, "_map", lambda *rest: set())


@pytest.fixture
def job(tiny) -> Job:
    recipe, data = tiny
    return Job("method", "trained", recipe, (data,), 1)


def test_a_trained_row_has_scores_classes_curve_and_origin(job, tmp_path):
    (line,) = perform(job, tmp_path / "job")
    hits, queries = line["classes"]["hits"], line["classes"]["queries"]
    assert sum(hits) / sum(queries) == pytest.approx(line["metrics"]["recall@1"])
    assert len(hits) == 10 and sum(queries) == 60
    assert line["seed"] == 1 and line["settings"]["seed"] == 1 and line["protocol"] == "validation"
    assert line["hardware"]["device"] and line["created"] and line["seconds"] > 0
    assert len(line["curves"]["validation recall@1"]["steps"]) == 2
    assert line["code"] == fingerprint(job.recipe) and 0 < line["metrics"]["train recall@1"] <= 1
    assert {"train nmi", "train f1"} <= line["metrics"].keys()  # as ALA's Table 2 has them
    info = RunDirectory.open(tmp_path / "job" / "run").info
    assert info["command"].startswith("vicinal train") and "seed=1" in info["command"]
    assert line["data"] == {key: info["data"][key] for key in ("name", "fingerprint")}
    before = (tmp_path / "job" / "run" / "results.json").stat().st_mtime_ns
    assert perform(job, tmp_path / "job")[0]["metrics"] == line["metrics"]  # finished: measured, not trained again
    assert (tmp_path / "job" / "run" / "results.json").stat().st_mtime_ns == before


def test_a_run_of_older_code_is_not_recorded_as_one_of_todays(job, tmp_path, monkeypatch):
    for code, wanted in (("old", "old"), ("old", "old"), ("new", "old+new")):
        monkeypatch.setattr(jobs, "fingerprint", lambda recipe, code=code: code)
        assert perform(job, tmp_path / "job")[0]["code"] == wanted
    shutil.rmtree(tmp_path / "job" / "run")
    assert perform(job, tmp_path / "job")[0]["code"] == "new"  # trained again


def test_readings_are_means_over_the_middle_and_the_last_fifth(tmp_path):
    run = RunDirectory.create(tmp_path / "run")
    with run.metrics_path.open("w") as file:
        for step in range(10):
            scalars = {"loss": 1.0, "hardness/lambda": step / 10}
            file.write(json.dumps({"kind": "step", "step": step, "epoch": 0, **scalars}) + "\n")
    assert readings(run) == {"loss": [1.0, 1.0], "hardness/lambda": [0.45, 0.85]}


def test_where_the_data_lies_is_no_part_of_the_result(job, tmp_path, tiny):
    copy = tmp_path / "copy.npz"
    shutil.copy(tiny[1].removeprefix("data="), copy)
    there = replace(job, data=str(copy))
    assert there.identity() == job.identity() and there.folder(tmp_path) == job.folder(tmp_path)
    (line,) = perform(there, tmp_path / "job")
    assert line["data_from"] == str(copy) and line["settings"] == job.identity()["settings"]
    assert RunDirectory.open(tmp_path / "job" / "run").info["data"]["description"]["path"] == str(copy)


def test_an_interrupted_job_goes_on_and_ends_as_if_it_had_not_been(job, tmp_path, monkeypatch):
    job = replace(job, overrides=(*job.overrides, "checkpoint_seconds=0"))
    (whole,) = perform(job, tmp_path / "whole")
    select = Trainer._select

    def interrupted(trainer):
        select(trainer)
        if trainer.position.epoch == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform(job, tmp_path / "cut")
    assert RunDirectory.open(tmp_path / "cut" / "run").status["state"] == "interrupted"
    began = (tmp_path / "cut" / "run" / "run.json").stat().st_mtime_ns
    monkeypatch.setattr(Trainer, "_select", select)
    (resumed,) = perform(job, tmp_path / "cut")
    assert (tmp_path / "cut" / "run" / "run.json").stat().st_mtime_ns == began  # resumed, not begun again
    assert resumed["metrics"] == whole["metrics"] and resumed["curves"] == whole["curves"]


def test_what_failed_or_never_became_a_run_starts_anew(job, tmp_path):
    (tmp_path / "job" / "run").mkdir(parents=True)
    (tmp_path / "job" / "run" / ".lock").write_text("")
    perform(job, tmp_path / "job")
    run = RunDirectory.open(tmp_path / "job" / "run")
    run.write_status("failed", message="diverged")
    shutil.rmtree(run.checkpoints_path)
    assert perform(job, tmp_path / "job")[0]["seconds"] > 0


def test_a_run_made_by_hand_is_adopted_by_the_row_that_it_is(table, tiny, tmp_path):
    recipe, data = tiny
    for seed, rate in ((1, "1e-2"), (0, "1e-3")):
        made = apply(find_recipe(recipe), [data, f"seed={seed}", f"optimisation.learning_rate={rate}", "workers=0"])
        start(recipe, made, tmp_path / f"run-{seed}", command="by hand", console=Console(quiet=True))
    assert adopt(table, tmp_path / "run-1", tmp_path / "results") == "method"
    line = collect(table, tmp_path / "results").lines["method"][1]
    assert sum(line["classes"]["hits"]) / sum(line["classes"]["queries"]) == pytest.approx(line["metrics"]["recall@1"])
    with pytest.raises(ConfigError, match="no row of table 'tiny'"):
        adopt(table, tmp_path / "run-0", tmp_path / "results")
    RunDirectory(tmp_path / "run-0").write_status("interrupted")
    with pytest.raises(RunError, match="is interrupted"):
        adopt(table, tmp_path / "run-0", tmp_path / "results")


def test_baselines_fill_three_rows(job, tmp_path):
    lines = perform(replace(job, kind="baselines", dim=4), tmp_path)
    assert [line["row"] for line in lines] == list(BASELINES)
    assert all(0 < line["metrics"]["recall@1"] <= 1 and line["kind"] == "baselines" for line in lines)
    assert not (tmp_path / "run").exists()


def test_final_trains_on_all_classes_and_authors_select_on_test(job, tmp_path):
    (final,) = perform(replace(job, protocol="final"), tmp_path / "final")
    (authors,) = perform(replace(job, protocol="authors"), tmp_path / "authors")
    counts = [RunDirectory.open(tmp_path / name / "run").info["data"]["counts"] for name in ("final", "authors")]
    assert [count["train"]["classes"] for count in counts] == [10, 10]
    assert final["selected"]["by"] == "last step" and authors["selected"]["by"] == "validation recall@1"
    assert authors["metrics"]["recall@1"] == authors["selected"]["value"] >= final["metrics"]["recall@1"]
    assert authors["classes"]["queries"] == final["classes"]["queries"]


def test_the_reality_check_concatenates_four_folds(job, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_PROTOCOL_SETTINGS", {"reality_check": ("dim=3",)})
    (line,) = perform(replace(job, protocol="reality_check"), tmp_path)
    runs = [RunDirectory.open(tmp_path / f"fold-{fold}") for fold in range(4)]
    alone = [run.results["rows"][-1]["metrics"]["map@r"] for run in runs]
    assert line["metrics"]["map@r 3-d"] == pytest.approx(sum(alone) / 4)
    assert line["metrics"]["map@r"] not in alone
    assert len(line["selected"]) == 4


def test_a_fold_scores_what_it_held_out_and_never_sees_test(job, tmp_path):
    (line,) = perform(replace(job, kind="fold", fold=(1, 4, 0)), tmp_path)
    counts = RunDirectory.open(tmp_path / "run").info["data"]["counts"]
    assert counts["test"]["records"] == 0 and counts["validation"]["classes"] in (2, 3)
    assert line["selected"]["value"] == line["metrics"]["recall@1"]


def test_a_fold_is_scored_after_its_last_step(job, tmp_path):
    (line,) = perform(replace(job, kind="fold", fold=(1, 4, 0), overrides=(*job.overrides, "epochs=3")), tmp_path)
    looks = line["curves"]["validation recall@1"]["values"]
    assert len(looks) == 3 and line["last"] == pytest.approx(looks[-1], abs=1e-4)
    assert line["selected"]["value"] == pytest.approx(max(looks), abs=1e-4)


def test_a_fold_that_diverges_is_a_result_and_a_row_that_does_is_a_failure(job, tmp_path):
    wild = replace(job, overrides=(*job.overrides, "optimisation.learning_rate=1e30"))
    (line,) = perform(replace(wild, kind="fold", fold=(1, 4, 0)), tmp_path / "fold")
    assert line["last"] == 0 and "diverged" in line["diverged"]
    with pytest.raises(DivergenceError):
        perform(wild, tmp_path / "row")


def test_settings_decide_the_folder_and_wrong_ones_are_refused(job, tmp_path):
    other = replace(job, overrides=(*job.overrides, "epochs=3"))
    assert job.folder(tmp_path) != other.folder(tmp_path)
    assert job.folder(tmp_path) == replace(job, overrides=(*job.overrides, "epochs=2")).folder(tmp_path)  # the default
    with pytest.raises(ConfigError, match="did you mean 'epochs'"):
        replace(job, overrides=(*job.overrides, "epoch=3")).resolved()
    with pytest.raises(ConfigError, match="protocol `final`"):
        replace(job, overrides=(*job.overrides, "validation=0")).resolved()


def test_a_job_is_read_as_it_was_written(job, tmp_path):
    jobs.write(job, tmp_path)
    assert jobs.read(tmp_path) == job
