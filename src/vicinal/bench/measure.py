"""What a job records of a run: scores, right answers by class, learning curves, where it was computed."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.bench.folds import Fold, SelectOnTest
from vicinal.bench.results import Line
from vicinal.bench.table import PCA, UNTRAINED, WHITENED
from vicinal.config import Config
from vicinal.data import DATASETS
from vicinal.data.records import BOTH, GALLERY, QUERY, Records
from vicinal.description import build
from vicinal.errors import ConfigError, DataError, RunError
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.evaluation.measure import measure
from vicinal.evaluation.neighbors import neighbors
from vicinal.evaluation.retrieval import map_at_r, r_precision, ranks_needed, recall_at, relevant_counts, right
from vicinal.parallel import pick_device
from vicinal.reports.series import Thinner
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.provenance import commit, hardware, package_version

POINTS = 20  # of a learning curve in a results file
_FLOOR = 1e-6  # of the largest variance: directions below it are noise that whitening would blow up


def origin(config: Config) -> Line:
    """Commit and machine at hand."""
    facts = hardware(pick_device(config.training.device))
    place = facts.get("gpu") or f"{facts['cores']} {facts['machine']} cores"
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] > 1)}"
    return {"commit": commit(), "hardware": f"{place}, {threads} a run, torch {package_version('torch')}"}


def finished(run: RunDirectory, config: Config) -> Line:
    """A finished run on its test classes."""
    results = _results(run)
    return {
        "seconds": run.status["seconds"],
        "data": run.info["data"]["fingerprint"],
        "metrics": row_metrics(results) | _in_training(run),
        "held_out": results["selected"].get("value"),
        **run_class_scores(run, "recall@1", pick_device(config.training.device), config.data.load()),
        "curves": curves(run),
        "scalars": scalars(run),
    }


def held_out(run: RunDirectory) -> Line:
    """A fold's Recall@1 on the classes that it held out, after the last step, and the epoch that was best."""
    looks = [line["metrics"]["recall@1"] for line in run.metrics() if line["kind"] == "evaluation"]
    return {"seconds": run.status["seconds"], "score": looks[-1], "epoch": _results(run)["selected"]["epoch"] + 1}


def concatenated(runs: Sequence[RunDirectory], config: Config) -> Line:
    """The models of all folds side by side, and the mean of each alone (Musgrave et al. 2020).

    Differs: the paper selects each model by MAP@R of its validation classes; the trainer selects by Recall@1.
    """
    device, skip = pick_device(config.training.device), config.training.skip_corrupt
    part = config.data.load().part("test")
    each = [Encoder.load(run, device).embed(part, skip_corrupt=skip) for run in runs]
    together = Embedded(torch.cat([embedded.vectors for embedded in each], dim=1), each[0].records, each[0].skipped)
    alone = [row_metrics(_results(run)) for run in runs]
    width = each[0].vectors.shape[1]
    means = {f"{name} {width}-d": sum(m[name] for m in alone) / len(alone) for name in alone[0]}
    return {
        "seconds": sum(run.status["seconds"] for run in runs),
        "metrics": {**_scores(together, config), **means},
        **class_scores(together, "recall@1"),
        "curves": curves(runs[0]),
    }


def untrained(config: Config, dim: int | None = None) -> list[Line]:
    """The rows without training: the untrained network's features by cosine, their PCA, their whitened PCA.

    Projections are fitted on what the trained rows learn from. Features are put on the sphere before and after.

    Args:
        dim: to which PCA reduces; that of the model by default.
    """
    experiment = prepare(config, Console())
    test = experiment.embed(experiment.encoder, experiment.records.part("test"), features=True)
    known = normalize(experiment.embed(experiment.encoder, experiment.train, features=True).vectors, dim=1)
    features = normalize(test.vectors, dim=1)
    rows, dim = {UNTRAINED: features}, dim or config.model.dim or features.shape[1]
    for name, whiten in ((PCA, False), (WHITENED, True)):
        rows[name] = normalize(fit_pca(known, dim, whiten=whiten)(features), dim=1)
    lines = []
    for name, vectors in rows.items():
        embedded = Embedded(vectors, test.records, test.skipped)
        scores = _scores(embedded, config)
        lines.append({"row": name, "seconds": 0.0, "metrics": scores, **class_scores(embedded, "recall@1")})
    return lines


@dataclass(frozen=True)
class Projection:
    """x -> (x - mean) W, fitted on vectors of the training classes."""

    mean: Float[Tensor, "c"]
    directions: Float[Tensor, "c d"]

    def __call__(self, vectors: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        return ((vectors.double() - self.mean) @ self.directions).float()


def fit_pca(vectors: Float[Tensor, "n c"], dim: int, *, whiten: bool) -> Projection:
    """The ``dim`` directions of largest variance; ``whiten`` scales each to variance 1 (Jégou and Chum 2012).

    Fewer where there are not as many: n vectors span n - 1 directions about their mean.
    """
    if dim < 1 or len(vectors) < 2:
        raise ConfigError(f"PCA needs at least 1 dimension and 2 vectors, got {dim} and {len(vectors)}.")
    exact = vectors.double()
    mean = exact.mean(dim=0)
    centered = exact - mean
    variances, directions = torch.linalg.eigh(centered.T @ centered / (len(vectors) - 1))
    kept = min(dim, vectors.shape[1], len(vectors) - 1)
    variances, directions = variances.flip(0)[:kept], directions.flip(1)[:, :kept]
    if whiten:
        directions = directions / variances.clamp(min=_FLOOR * float(variances[0])).sqrt()
    return Projection(mean, directions)


def by_query(metric: str) -> bool:
    """Whether a metric is a mean over queries, so that classes can be drawn anew."""
    return metric in ("map@r", "r_precision") or (metric.startswith("recall@") and metric[7:].isdigit())


def class_scores(embedded: Embedded, metric: str) -> dict[str, Any]:
    """``queries`` and ``hits`` of each class, by growing label: how many queries, and the sum of their scores.

    Queries against gallery where the records have such roles, leave-one-out elsewhere. Classes that no neighbor can be
    of are left out. ``queries`` is one number where all classes have as many.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vectors, labels, gallery_labels, gallery = embedded.vectors.to(device), embedded.labels, None, None
    role = embedded.records.columns.get("role")
    if role is not None and not (role == BOTH).all():
        asked, there = (torch.from_numpy(role == wanted) for wanted in (QUERY, GALLERY))
        gallery, gallery_labels = vectors[there.to(device)], labels[there]
        vectors, labels = vectors[asked.to(device)], labels[asked]
    relevant = relevant_counts(labels, gallery_labels)
    k = int(metric[7:]) if metric.startswith("recall@") else ranks_needed(relevant, (1,))
    found = neighbors(vectors, k, gallery=gallery).ids.cpu()
    hits = right(found, labels, labels if gallery_labels is None else gallery_labels)
    recall = metric.startswith("recall@")
    scores = recall_at(hits, k) if recall else (map_at_r if metric == "map@r" else r_precision)(hits, relevant)
    keep = relevant > 0
    _, place, sizes = torch.unique(labels[keep], return_inverse=True, return_counts=True)
    sums = torch.bincount(place, weights=scores[keep].double(), minlength=len(sizes)).tolist()
    return _columns(sizes.tolist(), [round(value) if recall else round(value, 6) for value in sums])


def run_class_scores(
    run: RunDirectory, metric: str, device: torch.device, records: Records | None = None
) -> dict[str, Any]:
    """The same of a finished run's selected model on its own test classes, which are embedded again if need be.

    Args:
        records: its data; by default what the run describes.
    """
    written = run.arrays("by_class") if metric == "recall@1" else None
    if written is not None:
        return _columns(written["queries"].tolist(), written["hits"].tolist())
    if records is None:
        kinds = DATASETS | {kind.__name__: kind for kind in (Fold, SelectOnTest)}
        records = build(run.info["data"]["description"], kinds).load()
    part = records.part("test" if (records.splits == "test").any() else "validation")
    if not len(part):
        raise DataError(f"{run.path} was trained on {records.name}, which has no test classes to compare on.")
    workers = 0 if part.source.in_memory else min(8, os.cpu_count() or 1)
    skip = bool(run.settings.get("skip_corrupt"))
    return class_scores(Encoder.load(run, device).embed(part, workers=workers, skip_corrupt=skip), metric)


def _columns(queries: list[int], hits: list[float]) -> dict[str, Any]:
    return {"queries": queries[0] if len(set(queries)) == 1 else queries, "hits": hits}


def row_metrics(results: dict[str, Any], name: str = "trained") -> dict[str, float]:
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
        name: {"steps": [round(s, 1) for s in curve.steps], "values": [float(f"{v:.4g}") for v in curve.mean]}
        for name, curve in found.items()
    }


def scalars(run: RunDirectory) -> dict[str, float]:
    """The mean of each of the method's own scalars over the middle fifth of the steps."""
    series: dict[str, list[float]] = {}
    for line in run.metrics():
        if line["kind"] == "step":
            for name, value in line.items():
                if "/" in name and isinstance(value, (int, float)) and math.isfinite(value):
                    series.setdefault(name, []).append(value)
    middles = {name: np.array_split(np.array(values), 5)[2] for name, values in series.items() if len(values) >= 5}
    return {name: float(f"{part.mean():.5g}") for name, part in middles.items()}


def _in_training(run: RunDirectory) -> dict[str, float]:
    """The scores of the training classes, beside those of the test classes: does a method reduce over-fitting?"""
    rows = (run.document("diagnostics") or {"rows": []})["rows"]
    known: dict[str, Any] = next((row for row in rows if row["name"] == "train"), {})
    return {f"train {name}": known[name] for name in row_metrics(_results(run)) if name in known}


def _results(run: RunDirectory) -> dict[str, Any]:
    if run.results is None:
        raise RunError(f"{run.path} has no results: its data has no classes to measure on.")
    return run.results


def _scores(embedded: Embedded, config: Config) -> dict[str, float]:
    recalls, restarts = config.evaluation.recalls, config.evaluation.restarts
    return measure(embedded, recalls=recalls, clustering=True, seed=config.training.seed, restarts=restarts)
