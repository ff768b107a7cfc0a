"""Runs that were never trained, for tests of what reads one, and a pool without processes."""

import torch

from vicinal.arguments import describe
from vicinal.bench.pool import do
from vicinal.data import hold_out
from vicinal.data.check import rows_of
from vicinal.evaluation.encoder import Encoder
from vicinal.files import write_arrays
from vicinal.run_directory import RunDirectory


def keep_rows(run, data, validation=0.0):
    """Let ``run`` have been trained on ``data``, which lie there already."""
    records = data.load()
    split = hold_out(records, validation, 0) if validation else records
    write_arrays(run.rows_path, rows_of(split))


def drawn_run(path, embedder, transform, data=None, validation=0.0):
    """Write a run whose network is drawn, not trained, on ``data`` where there are any."""
    run = RunDirectory.create(path)
    settings = {"validation": validation, "seed": 0}
    described = {} if data is None else {"description": describe(data)}
    config = {"preset": "drawn", "slots": {"training": settings}}
    run.write_info({"vicinal": "0", "name": path.name, "config": config, "data": described})
    if data is not None:
        keep_rows(run, data, validation)
    encoder = Encoder(embedder.eval(), transform, torch.device("cpu"))
    encoder.save_description(run)
    encoder.save_weights(run)
    return run


def run_here(pool, tasks, done, **_):
    """Run a pool's tasks in this process, where hooks see what they do, and none starts anew."""
    for task in tasks:
        pool.end(task, do(pool.prepare(task)), done)
    return 0
