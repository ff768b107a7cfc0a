"""The paired comparison of any runs: by seed where several share their settings, over test classes in any case."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vicinal.bench.by_class import run_class_hits
from vicinal.bench.measuring import row_metrics
from vicinal.bench.results import agree
from vicinal.bench.statistics import Estimate, holm, paired_t_interval, smallest_effect, spread_of, t_interval
from vicinal.bench.summary import over_classes
from vicinal.errors import ConfigError, RunError, unknown
from vicinal.run_directory import RunDirectory
from vicinal.training.experiment import pick_device


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed."""

    name: str
    runs: Mapping[int, RunDirectory]

    def scores(self, metric: str) -> dict[int, float]:
        return {seed: _metrics(run)[metric] for seed, run in self.runs.items()}


@dataclass(frozen=True)
class Comparison:
    """A group against the first one, in one metric.

    Attributes:
        seeds: those that both groups have.
        over_seeds: mean paired difference with its interval; without an interval for fewer than two shared seeds.
        over_classes: the difference in Recall@1 with the interval over test classes; None where these differ.
        notes: what besides the method was not the same on both sides.
        p: of the paired t-test, corrected by Holm over all groups.
    """

    group: Group
    score: Estimate
    seeds: tuple[int, ...]
    over_seeds: Estimate | None
    over_classes: Estimate | None
    p: float | None
    smallest: float | None
    notes: tuple[str, ...] = ()


def groups(paths: Iterable[Path]) -> list[Group]:
    """The runs by their settings without the seed, in the order in which they came, named by what differs."""
    found: list[tuple[str, dict[str, Any], dict[int, RunDirectory]]] = []
    for path in paths:
        run = RunDirectory.open(path)
        if run.results is None:
            raise RunError(f"{run.path} has no results yet ({run.status.get('state')}). Compare finished runs.")
        recipe = run.info["recipe"]
        own = {key: value for key, value in recipe["settings"].items() if key != "seed"}
        seed = int(recipe["settings"]["seed"])
        for name, settings, runs in found:
            if name == recipe["name"] and agree(settings, own):
                if seed in runs:
                    raise ConfigError(f"{runs[seed].path} and {run.path} are one recipe with one seed. Leave one out.")
                runs[seed] = run
                break
        else:
            found.append((recipe["name"], own, {seed: run}))
    names = _names([(name, settings) for name, settings, _ in found])
    return [Group(name, runs) for name, (_, _, runs) in zip(names, found, strict=True)]


def compare(paths: Sequence[Path], metric: str = "recall@1") -> list[Comparison]:
    """Each group of runs against that of the first run; the first line is that group itself."""
    found = groups(paths)
    if len(found) < 2:
        raise ConfigError(
            f"a comparison needs runs of at least two recipes or settings, but {len(paths)} of one came. "
            f"Name the reference first, then the runs to hold against it."
        )
    for run in (run for group in found for run in group.runs.values()):
        if metric not in _metrics(run):
            raise ConfigError(f"{run.path}: " + unknown("metric", metric, _metrics(run)))
    for group in found:
        _refuse_other_test(found[0], group)
    first, *others = found
    hits = {run.path: {"classes": run_class_hits(run, pick_device("auto"))} for g in found for run in g.runs.values()}
    lines = [_against(first, group, metric, hits) for group in others]
    tested = [line.over_seeds.p for line in lines if line.over_seeds and line.over_seeds.p is not None]
    corrected = iter(holm(tested))
    lines = [
        replace(line, p=next(corrected)) if line.over_seeds and line.over_seeds.p is not None else line
        for line in lines
    ]
    itself = Comparison(first, t_interval(list(first.scores(metric).values())), (), None, None, None, None)
    return [itself, *lines]


def _against(first: Group, group: Group, metric: str, hits: Mapping[Path, Mapping[str, Any]]) -> Comparison:
    ours, theirs = group.scores(metric), first.scores(metric)
    seeds = sorted(ours.keys() & theirs.keys())
    # Without a shared seed the classes are still the same: all runs of each side against all of the other.
    sides = [[g.runs[seed] for seed in seeds] if seeds else list(g.runs.values()) for g in (group, first)]
    count = min(map(len, sides))
    left, right = ([hits[run.path] for run in side[:count]] for side in sides)
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    return Comparison(
        group,
        t_interval(list(ours.values())),
        tuple(seeds),
        paired_t_interval([ours[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else None,
        over_classes(left, right),
        None,
        smallest_effect(spread_of(differences), len(seeds)),
        tuple(_unlike((group.runs[seed], first.runs[seed]) for seed in seeds)),
    )


def _refuse_other_test(first: Group, group: Group) -> None:
    """A difference between scores on different test records is no difference between methods."""
    one = next(iter(first.runs.values()))
    wanted = _tested_on(one)
    for run in group.runs.values():
        if _tested_on(run) != wanted:
            raise ConfigError(
                f"runs are compared on the same test records, but {one.path} was tested on {_said(wanted)} and "
                f"{run.path} on {_said(_tested_on(run))}. Measure one on the other's data (`vicinal evaluate`) first."
            )


def _tested_on(run: RunDirectory) -> tuple[Any, ...]:
    results = run.results or {}
    return run.info["data"]["name"], results.get("split"), results.get("records"), results.get("classes")


def _said(tested: tuple[Any, ...]) -> str:
    name, split, records, classes = tested
    return f"{records} {split} records of {classes} classes of {name}"


def _unlike(pairs: Iterable[tuple[RunDirectory, RunDirectory]]) -> list[str]:
    """What a reader of the difference must know: it may come from these and not from the method."""
    found = dict[str, None]()
    for ours, theirs in pairs:
        protocols = [str((run.results or {}).get("protocol")) for run in (ours, theirs)]
        if protocols[0] != protocols[1]:
            found[f"protocol {protocols[0]} against {protocols[1]}"] = None
        elif ours.info["data"].get("fingerprint") != theirs.info["data"].get("fingerprint"):
            found["other training records, or other classes held out"] = None
    return list(found)


def _metrics(run: RunDirectory) -> dict[str, float]:
    return row_metrics(run.results or {"rows": []}, "trained")


def _names(found: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The recipe's name with the settings in which runs of that recipe differ."""
    names = []
    for name, settings in found:
        rivals = [other for rival, other in found if rival == name and other is not settings]
        flat = _flat(settings)
        differing = [key for key in flat if any(_flat(rival).get(key) != flat[key] for rival in rivals)]
        names.append(" ".join((name, *(f"{key}={flat[key]}" for key in differing))))
    return names


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            flat[before + key] = value
    return flat
