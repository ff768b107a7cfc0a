"""What a job computes does not depend on what its process did before: to the bit, as in a process of its own."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from vicinal.bench import job as jobs
from vicinal.bench.job import Job
from vicinal.bench.worker import PROGRAM, Worker

SMALL = ("data.per_class=4", "widths=4,8", "dim=8", "epochs=1", "restarts=1", "device=cpu")
EPISODES = (*SMALL, "method.batches=episodes", "method.loss=triplet")
PAIRS = (*SMALL, "method.batches=pairs", "method.loss=n_pair")
JOBS = (
    Job("HDML (N-pair)", "trained", "glyphs_methods", (*PAIRS, "method.name=hdml"), 1),
    Job("baselines", "baselines", "glyphs_methods", SMALL, 0, dim=4),
    Job("ALA (triplet)", "trained", "glyphs_methods", (*EPISODES, "method.name=ala"), 2),
)
VARYING = ("created", "wall", "seconds")


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def found(folder):
    """All that a job found, to the last bit of its weights, except when and how fast."""
    lines = json.loads((folder / "done.json").read_text())
    weights = {path.name: path.read_bytes() for path in folder.glob("run/*.safetensors")}
    return [{key: value for key, value in line.items() if key not in VARYING} for line in lines], weights


def done_by(worker, job, folder):
    folder.mkdir()
    jobs.write(job, folder)
    worker.give(folder)
    while (code := worker.ended()) is None:
        time.sleep(0.05)
    assert code == 0, (folder / "log.txt").read_text()
    assert worker.process.poll() is None, "the process stays: none of these jobs leaves traces"
    return found(folder)


@pytest.mark.slow
def test_a_job_ends_in_the_same_bits_whatever_its_process_did_before(tmp_path):
    alone = []
    for number, job in enumerate(JOBS):
        folder = tmp_path / f"alone-{number}"
        folder.mkdir()
        jobs.write(job, folder)
        subprocess.run([sys.executable, "-m", "vicinal.bench.job", folder], env=environment(), check=True)
        alone.append(found(folder))
    assert [len(weights) for _, weights in alone] == [1, 0, 1]
    worker = Worker(PROGRAM, environment(), tmp_path / "log.txt")
    try:
        for turn, number in enumerate((0, 1, 2, 2, 0)):  # after another, after one without training, after itself
            assert done_by(worker, JOBS[number], tmp_path / f"together-{turn}") == alone[number]
    finally:
        worker.leave()
    assert worker.process.returncode == 0


@pytest.mark.gpu
def test_a_process_stays_on_a_gpu_and_finds_the_same_again(tmp_path):
    worker = Worker(PROGRAM, environment(), tmp_path / "log.txt")
    on_gpu = [replace(job, overrides=(*job.overrides, "device=cuda")) for job in JOBS]
    try:
        recalls = [
            done_by(worker, on_gpu[number], tmp_path / f"job-{turn}")[0][-1]["metrics"]["recall@1"]
            for turn, number in enumerate((0, 1, 2, 2, 1, 0))
        ]
    finally:
        worker.leave()
    assert recalls[1] == recalls[4]
    assert recalls == pytest.approx(recalls[::-1], abs=0.02)  # sums of atomic additions differ in their last bits
