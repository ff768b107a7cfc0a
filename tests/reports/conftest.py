"""A synthetic run: everything a report can show, with class names no one should have to trust."""

import json
import math
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


def write_metrics(run: RunDirectory, steps: int, rng: np.random.Generator) -> None:
    journal = Journal(run.metrics_path)
    for step in range(steps):
        done = step / max(1, steps - 1)
        noise = float(rng.gamma(4, 0.25))
        scalars = {"loss": 0.15 + noise * math.exp(-4 * done), "active": math.exp(-3 * done)}
        scalars |= {"hardness/pull": 0.8 - 0.5 * done, "hardness/push": 0.3 + 0.4 * done}
        journal.append({"kind": "step", "step": step, "epoch": step // 60, **scalars})
        if step % 60 == 59:
            scores = {"recall@1": 0.92, "map@r": 0.71, "nmi": 0.89}
            metrics = {name: value * (0.45 + 0.55 * done) for name, value in scores.items()}
            line = {"kind": "evaluation", "step": step, "epoch": step // 60}
            journal.append({**line, "split": "validation", "metrics": metrics})
    message = "3 files could not be read: <b>a.png</b>, …"
    journal.append({"kind": "event", "step": 61, "epoch": 1, "message": message})
    journal.close()


def write_artifacts(
    run: RunDirectory, labels: list[str], per_class: int, thumbnails: bool, rng: np.random.Generator
):
    """Records class by class, a map of clusters, neighbors that are mostly right, and the classes
    that are not."""
    count = len(labels) * per_class
    owner = np.repeat(np.arange(len(labels)), per_class)
    entries = [
        {
            "id": i,
            "name": f"{labels[owner[i]]}/{i:05d}.png",
            "class": labels[owner[i]],
            "tile": i if thumbnails else None,
        }
        for i in range(count)
    ]
    # Lone surrogates cannot be written as UTF-8, only as JSON escapes: the way a stranger's file
    # may hold them.
    write_json_ascii(
        run.artifacts_path / "records.json", {"tile": TILE, "columns": COLUMNS, "records": entries}
    )
    if thumbnails:
        sheet = Image.new("L", (COLUMNS * TILE, -(-count // COLUMNS) * TILE), 255)
        for i in range(count):
            tile = Image.effect_noise((TILE, TILE), 90)
            sheet.paste(tile, (i % COLUMNS * TILE, i // COLUMNS * TILE))
        write_atomically(run.thumbnails_path, lambda file: sheet.save(file, "png", optimize=True))
    turn = np.arange(len(labels)) * 2.39996  # a sunflower's seeds: clusters that fill a disc
    centers = np.sqrt(np.arange(len(labels))) * np.stack([np.cos(turn), np.sin(turn)]) * 4.4
    run.write_arrays(
        "map",
        record=np.arange(count),
        position=(centers.T[owner] + rng.normal(size=(count, 2))).astype(np.float32),
    )
    query = rng.permutation(count)[: min(24, count)]

    def neighbors(right: float) -> np.ndarray:
        own = rng.random((len(query), 8)) < right
        drawn = rng.integers(count, size=own.shape)
        return np.where(own, (query[:, None] // per_class) * per_class + drawn % per_class, drawn)

    run.write_arrays(
        "retrieval",
        query=query,
        neighbors=neighbors(0.93),
        distances=np.sort(rng.random((len(query), 8)), axis=1).astype(np.float32),
        untrained_neighbors=neighbors(0.4),
    )
    within = np.linspace(0, 1, 33)
    run.write_arrays("thresholds", distance=1.8 * within, same=within**0.5, different=within**4)
    worst = [
        {"class": label, "records": per_class, "recall@1": min(1.0, 0.3 + 0.07 * i)}
        for i, label in enumerate(labels[:8])
    ]
    confused = [
        {
            "class": labels[i],
            "taken_for": labels[i + 1],
            "share": 0.5 - 0.05 * i,
            "queries": per_class,
            "example": [i * per_class, (i + 1) * per_class],
        }
        for i in range(min(8, len(labels) - 1))
    ]
    write_json_ascii(run.artifacts_path / "classes.json", {"worst": worst, "confused": confused})
    row = {"recall@1": 0.9}
    names = ("train", "test", "untrained test")
    run.write_document("diagnostics", {"rows": [{"name": name, **row} for name in names]})


def write_json_ascii(path: Path, value: object) -> None:
    write_atomically(path, lambda file: file.write(json.dumps(value).encode()))


@pytest.fixture(scope="session")
def make_run():
    """``make_run(path, labels=..., per_class=..., steps=..., ...)`` writes a run directory."""

    def make(
        path: Path,
        *,
        labels: tuple[str, ...] = HOSTILE,
        per_class: int = 6,
        thumbnails: bool = True,
        steps: int = 600,
        state: str = "finished",
    ) -> RunDirectory:
        rng = np.random.default_rng(0)
        run = RunDirectory.create(path)
        loss = {"name": "multi_similarity", "alpha": 2.0, "beta": 50.0, "base": 0.5}
        settings = {"epochs": 10, "learning_rate": 0.001, "seed": 0}
        counts = {
            "train": {"records": 5200, "classes": 260},
            "test": {"records": 2600, "classes": 130},
        }
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
        run.write_status(
            state,
            epoch=9,
            step=steps,
            seconds=97.4,
            message=None if state == "finished" else "Ctrl-C",
        )
        write_metrics(run, steps, rng)
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
                    {"name": "raw pixels", "metrics": {"recall@1": 0.413, "nmi": 0.52}},
                    {"name": "untrained", "metrics": {"recall@1": 0.471, "map@r": 0.19}},
                    {"name": "trained", "metrics": {"recall@1": 0.914, "map@r": 0.69, "f1": 0.74}},
                ],
                "notes": ["One class had a single record & was left out."],
            }
        )
        write_artifacts(run, list(labels), per_class, thumbnails, rng)
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
    return _reported(
        make_run(
            tmp_path_factory.mktemp("interrupted") / "run",
            state="interrupted",
            steps=130,
        )
    )


def _reported(run: RunDirectory) -> SimpleNamespace:
    page = write_report(run.path)
    return SimpleNamespace(run=run, page=page, text=page.read_text(encoding="utf-8"))
