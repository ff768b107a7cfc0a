"""What a job writes down of a run: scores, right answers by class, learning curve, where it was computed."""

import math
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from vicinal.bench.baselines import untrained_rows
from vicinal.bench.by_class import class_hits, run_class_hits
from vicinal.bench.recuts import ALLOWED
from vicinal.description import build
from vicinal.errors import RunError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.evaluation.measure import measure
from vicinal.reports.series import Thinner
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.experiment import pick_device, prepare
from vicinal.training.provenance import commit, hardware, package_version
from vicinal.training.recipe import Recipe

POINTS = 40  # of a learning curve in a results file


def origin(run: RunDirectory) -> dict[str, Any]:
    """Code and machine that trained a run, which may not be those that measure it now."""
    info = run.info
    return {key: info[key] for key in ("commit", "hardware", "versions")}


def provenance(recipe: Recipe) -> dict[str, Any]:
    """Code and machine at hand, for rows without a run."""
    versions = {"python": platform.python_version(), "torch": package_version("torch")}
    return {"commit": commit(), "hardware": hardware(pick_device(recipe.device)), "versions": versions}


def baselines(recipe: Recipe, dim: int) -> list[dict[str, Any]]:
    """The rows without training."""
    experiment = prepare(recipe, Console())
    test = experiment.embed(experiment.encoder, experiment.records.part("test"), features=True)
    lines = []
    for name, embedded in untrained_rows(experiment, test, dim=dim).items():
        lines.append(
            {"row": name, "seconds": 0.0, "metrics": _scores(embedded, recipe), "classes": class_hits(embedded)}
        )
    return lines


def finished(run: RunDirectory, device: str = "auto") -> dict[str, Any]:
    """A finished run on its test classes; ``device`` is where they are embedded again if need be."""
    results = _results(run)
    return {
        **origin(run),
        "seconds": run.status["seconds"],
        "data": {key: run.info["data"][key] for key in ("name", "fingerprint")},
        "metrics": row_metrics(results, "trained") | _in_training(run),
        "selected": results["selected"],
        "classes": run_class_hits(run, pick_device(device)),
        "curves": curves(run),
        "readings": readings(run),
    }


def held_out(run: RunDirectory) -> dict[str, Any]:
    """A fold's Recall@1 on the classes that it held out, after the last step: what ``validation=0`` would train.

    Beside it the best one on the way, and its step: whether fewer steps would have done.
    """
    results = _results(run)
    looks = [line["metrics"]["recall@1"] for line in run.metrics() if line["kind"] == "evaluation"]
    return {
        **origin(run),
        "seconds": run.status["seconds"],
        "metrics": row_metrics(results, "trained"),
        "selected": results["selected"],
        "last": looks[-1],
        "curves": curves(run),
    }


def diverged(said: str) -> dict[str, Any]:
    """A fold whose training ended in NaN: it finds nothing, and says why."""
    return {"seconds": 0.0, "metrics": {"recall@1": 0.0}, "selected": None, "last": 0.0, "diverged": said}


def concatenated(runs: Sequence[RunDirectory], recipe: Recipe) -> dict[str, Any]:
    """The models of all folds side by side, and the mean of each alone (Musgrave et al. 2020).

    Differs: the paper selects each model by MAP@R of its validation classes; the trainer selects by Recall@1.
    """
    device = pick_device(recipe.device)
    part = build(runs[0].info["data"]["description"], ALLOWED).load().part("test")
    each = [Encoder.load(run, device).embed(part, skip_corrupt=recipe.skip_corrupt) for run in runs]
    together = Embedded(torch.cat([embedded.vectors for embedded in each], dim=1), each[0].records, each[0].skipped)
    alone = [row_metrics(_results(run), "trained") for run in runs]
    width = each[0].vectors.shape[1]
    means = {f"{name} {width}-d": sum(m[name] for m in alone) / len(alone) for name in alone[0]}
    return {
        **origin(runs[0]),
        "seconds": sum(run.status["seconds"] for run in runs),
        "metrics": {**_scores(together, recipe), **means},
        "selected": [_results(run)["selected"] for run in runs],
        "classes": class_hits(together),
        "curves": curves(runs[0]),
    }


def row_metrics(results: dict[str, Any], name: str) -> dict[str, float]:
    return next(dict(row["metrics"]) for row in results["rows"] if row["name"] == name)


def curves(run: RunDirectory) -> dict[str, dict[str, list[float]]]:
    """Loss and validation recall by step, thinned."""
    thinned: dict[str, Thinner] = {}
    for line in run.metrics():
        if line["kind"] == "step":
            thinned.setdefault("loss", Thinner(POINTS)).add(line["step"], line["loss"])
        elif line["kind"] == "evaluation":
            name = f"{line['split']} recall@1"
            thinned.setdefault(name, Thinner(POINTS)).add(line["step"], line["metrics"]["recall@1"])
    found = {name: thinner.curve() for name, thinner in thinned.items()}
    return {
        name: {"steps": [round(s, 1) for s in curve.steps], "values": [float(f"{v:.5g}") for v in curve.mean]}
        for name, curve in found.items()
    }


def readings(run: RunDirectory) -> dict[str, list[float]]:
    """The method's scalars: the mean of each over the middle fifth of the steps, and over the last fifth."""
    series: dict[str, list[float]] = {}
    for line in run.metrics():
        if line["kind"] == "step":
            for name, value in line.items():
                if name not in ("kind", "step", "epoch") and isinstance(value, (int, float)) and math.isfinite(value):
                    series.setdefault(name, []).append(value)
    parts = {name: np.array_split(np.array(values), 5) for name, values in series.items() if len(values) >= 5}
    return {name: [float(f"{part.mean():.5g}") for part in (found[2], found[4])] for name, found in parts.items()}


def _in_training(run: RunDirectory) -> dict[str, float]:
    """The scores of the training classes, beside those of the test classes: does a method fight over-fitting?"""
    rows = (run.document("diagnostics") or {"rows": []})["rows"]
    known: dict[str, Any] = next((row for row in rows if row["name"] == "train"), {})
    return {f"train {name}": known[name] for name in row_metrics(_results(run), "trained") if name in known}


def _results(run: RunDirectory) -> dict[str, Any]:
    if run.results is None:
        raise RunError(f"{run.path} has no results: its data has no classes to measure on.")
    return run.results


def _scores(embedded: Embedded, recipe: Recipe) -> dict[str, float]:
    return measure(embedded, recalls=recipe.recalls, clustering=True, seed=recipe.seed, restarts=recipe.restarts)
