"""Trackers: their own files, read back, hold the values of metrics.jsonl, also after a crash and a
resume."""

import json
import shutil
import struct
from importlib import import_module

import pytest

from vicinal.errors import ConfigError, DataError
from vicinal.run_directory import Journal, RunDirectory
from vicinal.training import trackers
from vicinal.training.trackers import Trackers, check_trackers, scalars_of

CONFIG = {"loss": {"name": "triplet", "margin": 0.1}, "training": {"steps": 6, "recalls": [1, 2]}}
THIRD = 1 / 3  # has no exact float32


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_info({"created": "2026-01-01T00:00:00+00:00", "config": {"slots": CONFIG}})
    return run


def lines(first, last):
    """Lines of steps, an evaluation after each third and an event."""
    for step in range(first, last):
        yield {
            "kind": "step",
            "step": step,
            "epoch": step // 3,
            "loss": THIRD / (step + 1),
            "hardness/w": 0.1 * step,
        }
        if step % 3 == 2:
            scores = {"recall@1": THIRD * step, "map@r": 0.25}
            where = {"step": step + 1, "epoch": step // 3}
            yield {"kind": "evaluation", **where, "split": "validation", "metrics": scores}
            yield {"kind": "event", **where, "message": "could not read a file"}


def expected(path):
    """{name: [(step, value), ...]} of the lines of metrics.jsonl."""
    series = {}
    for text in path.joinpath("metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        for name, value in scalars_of(line).items():
            series.setdefault(name, []).append((line["step"], value))
    return series


def crash_and_resume(name, path):
    """Train 5 steps with a checkpoint after 3, lose the process, resume at the checkpoint and train
    to step 8."""
    journal = Journal(path / "metrics.jsonl")
    opened = Trackers([name], RunDirectory(path))
    length = 0
    for line in lines(0, 5):
        journal.append(line)
        opened.record(line)
        if line["step"] == 3 and line["kind"] == "event":
            opened.flush()
            length = journal.sync()
    opened.flush()  # the worst that a crash can leave: steps 3 and 4 are written
    journal.close()
    if name == "wandb":
        import_module("wandb").teardown()  # or its process would outlive the test
    journal = Journal(path / "metrics.jsonl", length=length)
    resumed = Trackers([name], RunDirectory(path))
    for line in lines(3, 8):
        journal.append(line)
        resumed.record(line)
    resumed.finish("finished")
    journal.close()


def read_tensorboard(path):
    from tensorboard.backend.event_processing.plugin_event_accumulator import (
        TENSORS,
        EventAccumulator,
    )
    from tensorboard.util.tensor_util import make_ndarray

    found = EventAccumulator(str(path / "tensorboard"), size_guidance={TENSORS: 0}).Reload()
    names = [name for name in found.Tags()["tensors"] if not name.startswith("config")]
    return {
        name: [(e.step, make_ndarray(e.tensor_proto).item()) for e in found.Tensors(name)]
        for name in names
    }


def read_mlflow(path):
    client, run = mlflow_run(path)
    names = {name: name.replace("_at_", "@") for name in client.get_run(run).data.metrics}
    return {names[n]: [(m.step, m.value) for m in client.get_metric_history(run, n)] for n in names}


def mlflow_run(path):
    from mlflow import MlflowClient

    client = MlflowClient((path / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("vicinal").experiment_id])
    return client, run.info.run_id


def wandb_records(path):
    """The records of the one offline run: a LevelDB log, in blocks of 32 KiB, after a header of 7
    bytes."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # as the end of the process would: its service has written everything
    (file,) = path.glob("wandb/offline-run-*/run-*.wandb")
    data = file.read_bytes()
    place = 7
    record = b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15  # padding
            continue
        _, length, part = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):  # whole, or the last of several parts
            parsed = Record()
            parsed.ParseFromString(record)
            record = b""
            yield parsed


def read_wandb(path):
    series = {}
    for record in wandb_records(path):
        if record.WhichOneof("record_type") != "history":
            continue
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                series.setdefault(name, []).append(
                    (record.history.step.num, json.loads(item.value_json))
                )
    return series


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "read"),
    [("tensorboard", read_tensorboard), ("mlflow", read_mlflow), ("wandb", read_wandb)],
)
def test_trackers_hold_the_values_of_the_metrics_also_after_a_crash(name, read, run, tmp_path):
    pytest.importorskip(name)
    crash_and_resume(name, tmp_path)
    found = read(tmp_path)
    assert found == expected(tmp_path)
    assert [step for step, _ in found["loss"]] == list(range(8))
    assert found["validation/recall@1"] == [(3, THIRD * 2), (6, THIRD * 5)]
    assert RunDirectory.open(tmp_path).info == run.info  # whatever links a tracker leaves


def test_a_link_of_wandb_out_of_the_run_hinders_nobody(run, tmp_path):
    inside = tmp_path / "wandb" / "offline-run"
    inside.mkdir(parents=True)
    (inside / "debug-core.log").symlink_to("/etc/hostname")
    RunDirectory.open(tmp_path)
    shutil.rmtree(tmp_path / "wandb")
    (tmp_path / "wandb").symlink_to("/etc")
    with pytest.raises(DataError, match="outside of"):
        RunDirectory.open(tmp_path)


@pytest.mark.slow
def test_mlflow_keeps_the_settings_and_the_state(run, tmp_path):
    pytest.importorskip("mlflow")
    states = {"interrupted": "KILLED", "failed": "FAILED", "finished": "FINISHED"}
    for state, status in states.items():
        opened = Trackers(["mlflow"], run)
        client, number = mlflow_run(tmp_path)
        assert client.get_run(number).info.status == "RUNNING"
        opened.finish(state)
        found = client.get_run(number)
        assert found.info.status == status
        assert found.info.run_name == tmp_path.name
        assert found.data.params["loss.margin"] == "0.1"


@pytest.mark.slow
def test_mlflow_online_has_one_run_at_the_place_that_the_user_names(run, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI"):
        check_trackers(["mlflow"], "online")
    server = tmp_path / "server"
    (server / "mlruns" / ".trash").mkdir(parents=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (server / "mlruns").as_uri())
    check_trackers(["mlflow"], "online")
    for first, last in ((0, 3), (3, 6)):  # a run, and its resume
        journal = Journal(run.metrics_path)
        for line in lines(first, last):
            journal.append(line)
        journal.close()
        opened = Trackers(["mlflow"], run, "online")
        opened.finish("finished")
        assert read_mlflow(server) == expected(tmp_path)


def test_a_server_of_mlflow_that_is_away_gets_the_metrics_later(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    opened = Trackers(["mlflow"], run)
    (tracker,) = opened.trackers
    tracker.log(0, {"loss": 0.5})

    def away(*_, **__):
        raise mlflow.exceptions.MlflowException("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(tracker._client, "log_batch", away)
        with pytest.warns(UserWarning, match="connection refused"):
            opened.flush()
    opened.finish("finished")
    assert read_mlflow(tmp_path)["loss"] == [(0, 0.5)]


@pytest.mark.slow
def test_wandb_online_needs_a_login(run, monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="wandb login"):
        Trackers(["wandb"], run, "online")


@pytest.mark.slow
def test_wandb_keeps_its_id_and_its_settings(run, tmp_path):
    pytest.importorskip("wandb")
    names = set()
    for _ in range(2):
        Trackers(["wandb"], run).finish("finished")
        records = wandb_records(tmp_path)
        (kept,) = [each.run for each in records if each.WhichOneof("record_type") == "run"]
        names.add(kept.run_id)
        config = {item.key: json.loads(item.value_json) for item in kept.config.update}
        assert config["loss"] == CONFIG["loss"] and kept.display_name == tmp_path.name
    assert len(names) == 1


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_named_with_its_command(name, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(
        ConfigError, match=rf"training\.trackers={name} .*`pip install 'vicinal\[{name}\]'`"
    ):
        check_trackers([name])
