"""Several processes train as one does; whoever ends, and however, leaves nothing running and a run
that resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from tests.training.conftest import steps_of
from torch.testing import assert_close

from vicinal import parallel
from vicinal.config import compose
from vicinal.errors import ConfigError
from vicinal.parallel import launch, pick_device, restarted
from vicinal.run_directory import RunDirectory
from vicinal.training.checkpoint import latest_checkpoint, load_checkpoint
from vicinal.training.console import Console
from vicinal.training.experiment import check_equal_parts, check_equal_start
from vicinal.training.run import start
from vicinal.training.trainer import Interruption

VICINAL = [sys.executable, "-m", "vicinal", "train"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "-m",
    "--",
    "vicinal",
    "train",
]
SILENT = ["--quiet", "--no-report"]
NEAR = {"atol": 1e-5, "rtol": 1e-4}
UNDRAWN = ["evaluation.artifacts=false"]  # which take a second


LAST_THREADS = """
import atexit, os, pathlib, sys

def tell():
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    sys.stderr.write(f"ended with the threads of {names}\\n")

if "RANK" in os.environ:
    atexit.register(tell)
"""
AGAIN = ["--trust", "breakable:Breakable"]


@pytest.mark.slow(20)
def test_two_processes_give_the_run_of_one(tiny, tmp_path, begin):
    path = tmp_path / "two"
    # Noise comes after the gather: all processes must draw the same, and what one process would.
    words = tiny.words("loss.noisy=true", "--processes", "2", "--run", str(path), *SILENT)
    with (tiny.folder / "breakable.py").open("a") as module:
        module.write(LAST_THREADS)
    loud = {**os.environ, "PYTHONFAULTHANDLER": "1"}  # says where, should a process be aborted
    done = subprocess.run([*VICINAL, *words], capture_output=True, text=True, env=loud)
    assert done.returncode == 0, done.stderr
    assert "pt_gloo" not in done.stderr, (
        "a thread of torch's that outlives Python's end may abort the process"
    )
    assert done.stderr.count("ended with the threads of") == 2
    assert done.stdout.count("MAP@R  ") <= 1 and done.stdout.count("Recall@1  ") == 1, (
        "only the first process speaks"
    )
    one = begin("one", "loss.noisy=true")
    two = RunDirectory.open(path)

    assert two.status["state"] == "finished"
    assert two.info["hardware"]["processes"] == two.status["processes"] == 2
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        assert a == pytest.approx(b, abs=1e-5) if a["kind"] == "step" else a == b
    assert_close(load_file(one.weights_path), load_file(two.weights_path), **NEAR)
    assert_close(
        *(load_checkpoint(latest_checkpoint(run.checkpoints_path))["method"] for run in (one, two)),
        **NEAR,
    )
    assert one.results["rows"] == two.results["rows"]
    assert files_of(one) == files_of(two)


@pytest.mark.slow(40)
def test_two_processes_evaluate_to_the_last_digit_as_one(begin, monkeypatch):
    pytest.importorskip("ray.data")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    words = ["evaluate", str(begin("one").path), "--split", "all", "--json"]
    vicinal = VICINAL[:-1]
    one, *two = (
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        for command in (
            [*vicinal, *words],
            [*vicinal, *words, "--processes", "2"],
            [*TORCHRUN[:-1], *words],
            [*vicinal, *words, "--ray", "2"],
        )
    )
    assert two == [one] * 3


def test_more_processes_than_gpus_are_rejected(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("vicinal.parallel.processes", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(ConfigError, match="2 processes on this machine and 1 GPUs"):
        pick_device("auto")
    assert pick_device("cpu").type == "cpu"


def test_processes_are_started_once_and_by_one_launcher(monkeypatch):
    assert not launch(1)
    with pytest.raises(ConfigError, match="got 0"):
        launch(0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not launch(2)
    with pytest.raises(ConfigError, match="a launcher has already started 2"):
        launch(4)


@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_who_starts_processes_again_says_so(monkeypatch, name):
    assert not restarted()
    monkeypatch.setenv(name, "1")
    assert restarted()


def test_processes_import_nothing_from_the_current_folder(monkeypatch):
    started = []
    monkeypatch.delenv("RANK", raising=False)
    for name in ("OMP_NUM_THREADS", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("logging.disable", lambda level: None)
    monkeypatch.setattr(
        "torch.distributed.launcher.api.elastic_launch",
        lambda config, program: lambda *words: started.append((program, *words)),
    )
    assert launch(2)
    assert started[0][:4] == (sys.executable, "-P", "-m", "vicinal")


def test_an_echo_of_ctrl_c_is_not_a_second_one(monkeypatch):
    with Interruption() as interruption:
        assert not interruption.requested()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert interruption.requested()
        monkeypatch.setattr("vicinal.training.trainer.ECHO_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow(12)
def test_an_error_is_printed_once_and_before_there_is_a_folder(tiny, tmp_path):
    words = tiny.words(
        "sampler.per_class=3", "--processes", "2", "--run", str(tmp_path / "run"), *SILENT
    )
    done = subprocess.run([*VICINAL, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("batch 1 has 9 rows") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow(27)
def test_ctrl_c_then_kill_minus_nine_then_one_process_change_nothing(tiny, tmp_path, begin, again):
    """The same run three times over: asked to stop, gone on with, killed in part, and finished by
    one process."""
    settings = ["loss.noisy=true", "training.epochs=6", *UNDRAWN]
    whole = begin("whole", *settings)
    path = tmp_path / "run"
    words = tiny.words(
        *settings, "loss.slow=0.05", "--processes", "2", "--run", str(path), "--no-report"
    )
    launcher, ranks = disturbed(
        [*VICINAL, *words, "training.checkpoint_seconds=1000"], path, steps=3
    )
    launcher.send_signal(signal.SIGINT)
    said = ended(launcher, ranks, code=130)
    assert f"vicinal train --resume {path}" in said
    run = RunDirectory.open(path)
    assert run.status["state"] == "interrupted"
    reached = load_checkpoint(latest_checkpoint(run.checkpoints_path))["position"]["step"]
    assert reached == run.status["step"] == steps_of(path)

    saved = json.loads(run.info_path.read_text())
    saved["config"]["slots"]["training"]["checkpoint_seconds"] = (
        0.0  # a kill must lose nothing, to see that it loses nothing
    )
    run.info_path.write_text(json.dumps(saved))
    words = ["--resume", str(path), *AGAIN, "--processes", "2", "--no-report"]
    launcher, ranks = disturbed([*VICINAL, *words], path, steps=reached + 3)
    os.kill(ranks[1], signal.SIGKILL)
    said = ended(launcher, ranks, code=1)
    assert "process 1 of 2 was killed" in said
    assert run.status["state"] == "failed" and "lost contact" in run.status["message"]
    assert latest_checkpoint(run.checkpoints_path).name in run.status["message"]

    again(path)
    for a, b in zip(whole.metrics(), run.metrics(), strict=True):
        assert a == pytest.approx(b, abs=1e-5) if a["kind"] == "step" else a == b
    assert_close(load_file(whole.weights_path), load_file(run.weights_path), **NEAR)
    assert run.status["state"] == "finished" and run.status["processes"] == 1


@pytest.mark.slow(60)
def test_a_killed_process_is_started_again_and_then_the_run_resumed_bit_for_bit(tiny, tmp_path):
    """Started by torchrun, which starts all processes again once; then the first is killed, so
    another one has to write the status. Resumed by ours."""
    trust = ["--trust", "breakable:Proxies"]
    settings = ["loss=breakable:Proxies", "loss.sampled=0.5", "loss.noisy=true", *trust]
    settings += ["training.epochs=6", "training.checkpoint_seconds=0", *UNDRAWN]
    together = ["--processes", "2", *SILENT]
    whole = tmp_path / "whole"
    path = tmp_path / "run"
    subprocess.run([*VICINAL, *tiny.words(*settings, "--run", str(whole), *together)], check=True)
    words = tiny.words(*settings, "loss.slow=0.1", "--run", str(path), *SILENT)
    restarting = [*TORCHRUN[:3], "--max-restarts", "1", *TORCHRUN[3:]]
    launcher, ranks = disturbed([*restarting, *words], path, steps=3)
    os.kill(ranks[1], signal.SIGKILL)
    while launcher.poll() is None and numbered(launcher).get(1, ranks[1]) == ranks[1]:
        time.sleep(0.01)  # until it is another
    ranks = running(launcher, path, steps=steps_of(path) + 2)
    os.kill(ranks[0], signal.SIGKILL)
    ended(launcher, ranks, code=1)
    status = RunDirectory.open(path).status
    assert status["state"] == "failed" and "lost contact" in status["message"]
    subprocess.run([*VICINAL, "--resume", str(path), *AGAIN, *trust, *together], check=True)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (path / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow(15)
def test_processes_stop_with_a_checkpoint_when_their_launcher_is_killed(tiny, tmp_path):
    path = tmp_path / "run"
    words = tiny.words(
        "loss.slow=0.2",
        "training.epochs=50",
        "training.checkpoint_seconds=1000",
        "--run",
        str(path),
    )
    launcher, _ = disturbed([*VICINAL, *words, "--processes", "2", *SILENT], path, steps=3)
    launcher.kill()
    launcher.communicate()  # until the processes have closed their ends, too
    run = RunDirectory.open(path)
    assert run.status["state"] == "interrupted"
    assert latest_checkpoint(run.checkpoints_path).stem == f"step-{run.status['step']:08d}"


def on_one_gpu(number: int, folder: str, count: int) -> None:
    """A process of ``count`` that share one GPU, which NCCL rejects; gloo moves their rows through
    the host."""
    torch.backends.cudnn.allow_tf32 = False
    if count > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=number, world_size=count
        )
    config = compose(
        {
            "data": {"name": "glyphs", "per_class": 12},
            "model": {"name": "small", "widths": [8, 16]},
            "loss": "batch_all_triplet",
            "training": {"epochs": 2, "precision": "float32", "device": "cuda"},
            "evaluation": {"restarts": 1},
        }
    )
    start(config, Path(folder) / f"of_{count}", command="test", console=Console(quiet=True))
    if count > 1:
        dist.destroy_process_group()


@pytest.mark.gpu
def test_synchronized_norms_on_a_gpu_see_the_whole_batch(tmp_path):
    for count in (1, 2):
        mp.start_processes(
            on_one_gpu, args=(str(tmp_path), count), nprocs=count, start_method="spawn"
        )
    runs = [RunDirectory.open(tmp_path / f"of_{count}") for count in (1, 2)]
    losses = [[line["loss"] for line in run.metrics("step")] for run in runs]
    assert losses[0][:10] == pytest.approx(losses[1][:10], rel=1e-3)
    assert len(losses[0]) == len(losses[1])
    a, b = (set(load_file(tmp_path / f"of_{count}" / "model.safetensors")) for count in (1, 2))
    assert a == b


@pytest.mark.slow(15)
@pytest.mark.parametrize(
    ("error", "code"), [("DataError('no such picture')", 2), ("RuntimeError('a bug')", 1)]
)
def test_an_error_in_one_process_ends_all_and_is_named(tiny, tmp_path, error, code):
    loss = tiny.folder / "breakable.py"
    text = loss.read_text().replace(
        "import time\n", "import os, time\nfrom vicinal.errors import DataError\n"
    )
    breaks = (
        f"        if self.calls == 4 and os.environ['RANK'] == '1':\n            raise {error}\n"
    )
    loss.write_text(text.replace("        self.calls += 1\n", "        self.calls += 1\n" + breaks))
    path = tmp_path / "run"
    words = tiny.words("--processes", "2", "--run", str(path), *SILENT)
    began = time.monotonic()
    done = subprocess.run([*VICINAL, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == code and time.monotonic() - began < 100
    message = error.split("'")[1]
    assert f"error: process 1 of 2: {message}" in done.stderr
    assert ("Traceback" in done.stderr) == (code == 1)
    status = RunDirectory.open(path).status
    assert (
        status["state"] == "failed"
        and f"process 1 of 2: {message}. It goes on from" in status["message"]
    )


def disturbed(command, path, *, steps):
    """Start a run and wait until it has taken some steps; return its launcher and the processes by
    their numbers."""
    launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    return launcher, running(launcher, path, steps=steps)


def running(launcher, path, *, steps):
    """The processes by their numbers, when they have taken some steps."""
    while steps_of(path) < steps and launcher.poll() is None:
        time.sleep(0.01)
    found = numbered(launcher)
    assert sorted(found) == [0, 1], "the run ended before it could be disturbed"
    return found


def numbered(launcher):
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    found = {}
    for child in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            for word in Path(f"/proc/{child}/environ").read_text().split("\0"):
                if word.startswith("RANK="):
                    found[int(word.removeprefix("RANK="))] = int(child)
    return found


def ended(launcher, ranks, *, code):
    """Wait for the end, which comes within seconds (of a machine that has nothing else to do); what
    was said."""
    _, said = launcher.communicate(timeout=60)
    assert launcher.returncode == code, said
    assert not [number for number, pid in ranks.items() if Path(f"/proc/{pid}").exists()]
    return said


def files_of(run):
    return sorted(path.name for path in run.path.rglob("*") if not path.name.startswith("step-"))


def test_processes_start_alike(monkeypatch):
    """The first one's weights, and equal settings, records and parts of a batch."""
    monkeypatch.setattr(parallel, "processes", lambda: 2)
    monkeypatch.setattr(parallel, "rank", lambda: 1)
    monkeypatch.setattr(parallel, "spread", lambda sent: [tensor.fill_(1) for tensor in sent])
    weights = {"weight": torch.zeros(2)}
    given = (
        SimpleNamespace(slots=lambda: {"loss": "n_pair"}),
        SimpleNamespace(fingerprint=lambda: "these"),
        SimpleNamespace(embedder=SimpleNamespace(state_dict=lambda: weights)),
    )
    for theirs in ({}, {"settings": {}}, {"records": "others"}):
        monkeypatch.setattr(parallel, "from_first", lambda make, sent=theirs: make() | sent)
        wrong = pytest.raises(ConfigError, match=f"same {next(iter(theirs), None)}")
        with wrong if theirs else nullcontext():
            check_equal_start(*given)
    assert weights["weight"].tolist() == [1, 1]
    with pytest.raises(ConfigError, match="batch 2 has 3 rows"):
        check_equal_parts([[0, 1], [0, 1, 2]])
