"""The paired comparison of any runs: by seed where several share their settings, over test classes
in any case."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vicinal.bench.job import by_query, row_metrics, run_class_scores
from vicinal.bench.table import NO_MATTER
from vicinal.errors import ConfigError, RunError, unknown
from vicinal.evaluation.statistics import Difference, Estimate, correct, difference, t_interval
from vicinal.run_directory import RunDirectory

# What changes speed and report but no result, and the seed.
_NO_MATTER = {f"{slot}.{name}" for slot, names in NO_MATTER.items() for name in names}


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    name: str
    runs: Mapping[int, RunDirectory]

    def scores(self, metric: str) -> dict[int, float]:
        return {seed: _metrics(run)[metric] for seed, run in self.runs.items()}


@dataclass
class Comparison:
    """A group against the first one, in one metric; the first itself has its score alone.

    Attributes:
        seeds: those that both groups have.
        difference: to the first group; without an interval over classes for metrics that are no
            mean over queries, such as NMI.
        notes: what besides the settings was not the same on both sides.
    """

    group: Group
    score: Estimate
    seeds: tuple[int, ...] = ()
    difference: Difference = field(default_factory=Difference)
    notes: tuple[str, ...] = ()


def groups(paths: Iterable[Path]) -> list[Group]:
    """The runs by their settings without the seed, in the order in which they are given, named by
    what differs."""
    found: list[tuple[dict[str, Any], dict[int, RunDirectory]]] = []
    for path in paths:
        run = RunDirectory.open(path)
        if run.results is None:
            raise RunError(
                f"{run.path} has no results yet ({run.status.get('state')}). Compare finished runs."
            )
        slots = _flat(run.config["slots"])
        seed = int(slots["training.seed"])
        own = {key: value for key, value in slots.items() if key not in _NO_MATTER}
        own |= {"": run.config["preset"], "data.records": run.info["data"].get("records")}
        runs = next((runs for other, runs in found if other == own), None)
        if runs is None:
            found.append((own, runs := {}))
        if seed in runs:
            raise ConfigError(
                f"{runs[seed].path} and {run.path} have the same settings and seed. Drop one."
            )
        runs[seed] = run
    names = _names([own for own, _ in found])
    return [Group(name, runs) for name, (_, runs) in zip(names, found, strict=True)]


def compare(paths: Sequence[Path], metric: str = "recall@1") -> list[Comparison]:
    """Each group of runs against that of the first run; the first line is that group itself."""
    found = groups(paths)
    if len(found) < 2:
        raise ConfigError(
            f"a comparison needs runs of at least two settings, got {len(paths)} of one. Name the "
            "reference first, "
            f"then the runs to compare with it."
        )
    runs = [run for group in found for run in group.runs.values()]
    for run in runs:
        if metric not in _metrics(run):
            raise ConfigError(f"{run.path}: " + unknown("metric", metric, _metrics(run)))
        if _tested_on(run) != _tested_on(runs[0]):
            raise ConfigError(
                f"runs are compared on the same test records, got {runs[0].path} tested on "
                f"{_tested_on(runs[0])} and "
                f"{run.path} on {_tested_on(run)}. Measure one on the other's data (`vicinal "
                "evaluate`) first."
            )
    sums = {run.path: run_class_scores(run, metric) if by_query(metric) else {} for run in runs}
    first, *others = found
    lines = [_against(first, group, metric, sums) for group in others]
    correct(line.difference for line in lines)
    return [Comparison(first, t_interval(list(first.scores(metric).values()))), *lines]


def _against(
    first: Group, group: Group, metric: str, sums: Mapping[Path, Mapping[str, Any]]
) -> Comparison:
    ours = group.scores(metric)
    theirs = first.scores(metric)
    seeds = sorted(ours.keys() & theirs.keys())
    # Without a shared seed the classes are still the same: all runs of each side against all of the
    # other.
    sides = [
        [g.runs[seed] for seed in seeds] if seeds else list(g.runs.values()) for g in (group, first)
    ]
    left, right = ([sums[run.path] for run in side[: min(map(len, sides))]] for side in sides)
    notes = dict.fromkeys(
        note for seed in seeds for note in _unlike(group.runs[seed], first.runs[seed])
    )
    apart = difference(ours, theirs, left, right)
    return Comparison(group, t_interval(list(ours.values())), tuple(seeds), apart, tuple(notes))


def _tested_on(run: RunDirectory) -> str:
    results = run.results or {}
    facts = (results.get(key) for key in ("records", "split", "classes"))
    return "{} {} records of {} classes of {}".format(*facts, run.info["data"]["name"])


def _unlike(ours: RunDirectory, theirs: RunDirectory) -> Iterator[str]:
    """What a reader of the difference must know: it may come from these and not from the
    settings."""
    protocols = [str((run.results or {}).get("protocol")) for run in (ours, theirs)]
    if ours.info["data"].get("records") != theirs.info["data"].get("records"):
        yield "other data: names, labels, splits or content of the records differ"
    elif protocols[0] != protocols[1]:
        yield f"protocol {protocols[0]} against {protocols[1]}"
    elif ours.info["data"].get("fingerprint") != theirs.info["data"].get("fingerprint"):
        yield "other training records, or other classes held out"


def _metrics(run: RunDirectory) -> dict[str, float]:
    return row_metrics(run.results or {"rows": []})


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The preset with the settings in which runs of it differ; another class of a slot stands for
    its arguments."""
    names = []
    for own in found:
        rivals = [other for other in found if other[""] == own[""]]
        differing = [key for key in own if any(one.get(key) != own[key] for one in rivals)]
        renamed = {key.removesuffix(".name") for key in differing if key.endswith(".name")}
        kept = [
            f"{key.removesuffix('.name')}={own[key]}"
            for key in differing
            if key.endswith(".name") or key.partition(".")[0] not in renamed
        ]
        names.append(" ".join((str(own[""]), *kept)))
    return names


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= (
            _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
        )
    return flat
