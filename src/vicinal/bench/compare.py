"""Any runs as a table: those that differ only in their seed are a row, compared with the first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vicinal.bench.job import finished, metrics_of, results_of
from vicinal.bench.run import Outcome
from vicinal.bench.summary import Summary, summarize
from vicinal.bench.table import NO_MATTER, Row, Table
from vicinal.errors import ConfigError, check_known
from vicinal.run_directory import RunDirectory, flat

_NO_MATTER = {f"{slot}.{name}" for slot, names in NO_MATTER.items() for name in names}


def compare(paths: Sequence[Path], metric: str = "recall@1") -> Summary:
    """The rows of some runs in one metric, the reference first."""
    rows: list[tuple[dict[str, Any], dict[int, RunDirectory]]] = []
    runs = [RunDirectory.open(path) for path in paths]
    for run in runs:
        check_known("metric", metric, metrics_of(run), f"{run.path}: ")
        if _tested_on(run) != _tested_on(runs[0]):
            raise ConfigError(
                f"runs are compared on the same test records, got {runs[0].path} tested on "
                f"{_tested_on(runs[0])} and {run.path} on {_tested_on(run)}."
            )
        slots = flat(run.config["slots"])
        own = {key: value for key, value in slots.items() if key not in _NO_MATTER}
        own |= {"": run.config["preset"], "data.records": run.info["data"].get("records")}
        same = next((seeds for other, seeds in rows if other == own), None)
        if same is None:
            same = {}
            rows.append((own, same))
        seed = int(slots["training.seed"])
        if seed in same:
            raise ConfigError(
                f"{same[seed].path} and {run.path} have the same settings and seed. Drop one."
            )
        same[seed] = run
    if len(rows) < 2:
        raise ConfigError(
            f"a comparison needs runs of at least two settings, got {len(paths)} of one. Name the "
            "reference first, then the runs to compare with it."
        )
    names = _names([own for own, _ in rows])
    table = Table(
        "Runs",
        Row(names[0]),
        *(Row(name, against=names[0]) for name in names[1:]),
        metrics=(metric,),
        seeds=max(len(seeds) for _, seeds in rows),
    )
    lines = {
        name: {
            seed: finished(run, metric) | {"protocol": results_of(run).get("protocol")}
            for seed, run in seeds.items()
        }
        for name, (_, seeds) in zip(names, rows, strict=True)
    }
    return summarize(Outcome(table, lines))


def _tested_on(run: RunDirectory) -> str:
    results = results_of(run)
    facts = (results.get(key) for key in ("records", "split", "classes"))
    return "{} {} records of {} classes of {}".format(*facts, run.info["data"]["name"])


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The preset with the settings in which runs of it differ; arguments count among runs with the
    same class."""

    def differs(key: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        kind = f"{key.partition('.')[0]}.name"
        comparable = key.endswith(".name") or own.get(kind) == other.get(kind)
        return comparable and own[key] != other.get(key)

    names = []
    for own in found:
        rivals = [other for other in found if other[""] == own[""]]
        kept = [
            f"{key.removesuffix('.name')}={own[key]}"
            for key in own
            if any(differs(key, own, other) for other in rivals)
        ]
        names.append(" ".join((str(own[""]), *kept)))
    return names
