"""A synthetic run: everything a report can show, with class names no one should have to trust."""

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from vicinal.files import write_atomically
from vicinal.reports import write_report
from vicinal.run_directory import Journal, RunDirectory

HOSTILE = (
    "<script>window.injected = true</script>",
    "</script><img src=x onerror='window.injected = true'>",
    '" onmouseover="window.injected = true',
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{0}$ and $",
    "漢字・かな",
    "עברית \u202e reversed",
    "_underscore",
    "line\nbreak\ttab \u2028 separator",
    "not utf-8: \udcff",
    "a very long name " * 8,
    "../../etc/passwd",
)
TILE = 48
COLUMNS = 16


def write_metrics(run: RunDirectory, steps: int) -> None:
    journal = Journal(run.metrics_path)
    for step in range(steps):
        line = {"step": step, "epoch": step // 60}
        part = step / steps
        scalars = {"loss": 1 - part, "active": part, "hardness/pull": 1 - part}
        journal.append({"kind": "step", **line, **scalars, "hardness/push": part})
        if step % 60 == 59:
            metrics = {"recall@1": part, "map@r": part / 2, "nmi": part}
            journal.append(
                {"kind": "evaluation", **line, "split": "validation", "metrics": metrics}
            )
    message = "3 files could not be read: <b>a.png</b>, …"
    journal.append({"kind": "event", "step": 61, "epoch": 1, "message": message})
    journal.close()


def write_artifacts(run: RunDirectory, labels: tuple[str, ...], thumbnails: bool):
    """Six records of each class, a map, neighbors, and the classes that are mistaken."""
    count = 6 * len(labels)
    rng = np.random.default_rng(0)
    entries = [
        {"id": i, "name": f"{name}/{i:05d}.png", "class": name, "tile": i if thumbnails else None}
        for i, name in enumerate(np.repeat(labels, 6).tolist())
    ]
    # Lone surrogates cannot be written as UTF-8, only as JSON escapes: the way a stranger's file
    # may hold them.
    write_json_ascii(
        run.artifacts_path / "records.json", {"tile": TILE, "columns": COLUMNS, "records": entries}
    )
    if thumbnails:
        sheet = Image.effect_noise((COLUMNS * TILE, -(-count // COLUMNS) * TILE), 90)
        write_atomically(run.thumbnails_path, lambda file: sheet.save(file, "png", optimize=True))
    run.write_arrays("map", record=np.arange(count), position=rng.random((count, 2)))
    near = {
        name: rng.integers(count, size=(24, 8)) for name in ("neighbors", "untrained_neighbors")
    }
    query = rng.integers(count, size=24)
    run.write_arrays("retrieval", query=query, distances=rng.random((24, 8)), **near)
    within = np.linspace(0, 1, 33)
    run.write_arrays("thresholds", distance=1.8 * within, same=within**0.5, different=within**4)
    worst = [
        {"class": label, "records": 6, "recall@1": i / 10} for i, label in enumerate(labels[:8])
    ]
    pair = {"share": 0.4, "queries": 6, "example": [0, 6]}
    confused = [{"class": one, "taken_for": other, **pair} for one, other in pairwise(labels[:9])]
    write_json_ascii(run.artifacts_path / "classes.json", {"worst": worst, "confused": confused})
    row = {"recall@1": 0.9}
    names = ("train", "test", "untrained test")
    run.write_document("diagnostics", {"rows": [{"name": name, **row} for name in names]})


def write_json_ascii(path: Path, value: object) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(value).encode()))


@pytest.fixture(scope="session")
def make_run():
    """``make_run(path, labels=..., steps=..., ...)`` writes a run directory."""

    def make(
        path: Path,
        *,
        labels: tuple[str, ...] = HOSTILE,
        thumbnails: bool = True,
        steps: int = 600,
        state: str = "finished",
    ) -> RunDirectory:
        run = RunDirectory.create(path)
        loss = {"name": "multi_similarity", "alpha": 2.0, "beta": 50.0, "base": 0.5}
        settings = {"epochs": 10, "learning_rate": 0.001, "seed": 0}
        counts = {"train": {"records": 5200, "classes": 260}}
        run.write_info(
            {
                "vicinal": "0.1.0",
                "name": "glyphs-2025-01-31",
                "command": "vicinal train glyphs epochs=10",
                "commit": "e2038b8",
                "created": "2025-01-31T12:00:07+00:00",
                "hardware": {"processor": "2 cores, x86_64", "accelerator": None},
                "versions": {"torch": "2.13.0"},
                "config": {
                    "preset": "glyphs",
                    "title": "Characters never seen before",
                    "slots": {"loss": loss, "training": settings},
                },
                "data": {"name": "glyphs", "fingerprint": "5a1c90e27f3b4d68", "counts": counts},
            }
        )
        run.write_status(state, epoch=9, step=steps, seconds=97.4)
        write_metrics(run, steps)
        if state != "finished":
            return run
        run.write_results(
            {
                "format": 1,
                "split": "test",
                "protocol": "validation",
                "records": 2600,
                "classes": 130,
                "skipped": 0,
                "selected": {
                    "step": min(540, steps),
                    "epoch": 8,
                    "by": "validation recall@1",
                    "value": 0.93,
                },
                "rows": [
                    {"name": "untrained", "metrics": {"recall@1": 0.471, "map@r": 0.19}},
                    {"name": "trained", "metrics": {"recall@1": 0.914, "map@r": 0.69, "f1": 0.74}},
                ],
                "notes": ["One class had a single record & was left out."],
            }
        )
        write_artifacts(run, labels, thumbnails)
        return run

    return make


@pytest.fixture(scope="session")
def reported(make_run, tmp_path_factory) -> SimpleNamespace:
    """A finished run of hostile names and its report, made once."""
    return _reported(make_run(tmp_path_factory.mktemp("reported") / "run"))


@pytest.fixture(scope="session")
def reported_features(make_run, tmp_path_factory) -> SimpleNamespace:
    """A run on feature vectors, which have names and no pictures."""
    path = tmp_path_factory.mktemp("features") / "run"
    return _reported(make_run(path, thumbnails=False, labels=("heron", "<i>gull</i>"), steps=60))


@pytest.fixture(scope="session")
def reported_interrupted(make_run, tmp_path_factory) -> SimpleNamespace:
    """A run that was stopped before it could measure anything on its test classes."""
    path = tmp_path_factory.mktemp("interrupted") / "run"
    return _reported(make_run(path, state="interrupted", steps=130))


def _reported(run: RunDirectory) -> SimpleNamespace:
    page = write_report(run.path)
    return SimpleNamespace(run=run, page=page, text=page.read_text(encoding="utf-8"))
