"""What a task computes does not depend on what its process did before: to the bit, as in a process
of its own."""

import json
import time

import pytest

from vicinal.bench.job import Job
from vicinal.bench.pool import Worker
from vicinal.bench.table import load_tables
from vicinal.files import write_json

TABLE = """
from vicinal.bench import Table, row

TABLE = Table(
    "Small",
    row("HDML", loss="n_pair", method="hdml"),
    row("ALA", loss="triplet", method="ala"),
    preset="glyphs",
    words=("data.per_class=4", "model.widths=4,8", "model.dim=8", "training.epochs=1", "evaluation.restarts=1"),
    data="glyphs",
    training={"device": "cpu"},
)
"""
VARYING = ("created", "wall", "seconds")


def done_by(worker, job, folder):
    """All that a job found, to the last bit of its weights, except when and how fast."""
    folder.mkdir()
    worker.task, worker.folder = task, folder = job.task(), folder
    write_json(folder / "task.json", {"call": task.call, "arguments": task.arguments})
    worker.give()
    while (code := worker.ended()) is None:
        time.sleep(0.05)
    assert code == 0, (folder / "log.txt").read_text()
    assert worker.process.is_alive(), "the process stays: none of these tasks leaves traces"
    lines = json.loads((folder / "done.json").read_text())
    weights = {path.name: path.read_bytes() for path in folder.glob("run/*.safetensors")}
    return [
        {key: value for key, value in line.items() if key not in VARYING} for line in lines
    ], weights


@pytest.mark.slow(32)
def test_a_task_ends_in_the_same_bits_whatever_its_process_did_before(tmp_path):
    (tmp_path / "small.py").write_text(TABLE)
    (table,) = load_tables(str(tmp_path / "small.py"))
    jobs = [
        Job(table, table.row("HDML"), "untrained", 0),
        *(Job(table, row, "trained", 1) for row in table.rows),
    ]
    terms = jobs[0].task(), tmp_path, {"OMP_NUM_THREADS": "1"}, "vicinal.bench.worker:ProcessState"
    alone = {}
    for number in (0, 2, 1):
        worker = Worker(*terms)
        alone[number] = done_by(worker, jobs[number], tmp_path / f"alone-{number}")
        if number != 1:  # the last one goes on
            worker.leave()
            assert worker.process.exitcode == 0
    try:
        for turn, number in enumerate(
            (0, 2, 2, 1)
        ):  # after another, after one without training, after itself
            assert done_by(worker, jobs[number], tmp_path / f"together-{turn}") == alone[number]
    finally:
        worker.leave()
