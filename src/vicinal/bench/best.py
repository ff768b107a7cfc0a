"""Which row of a kind is the best, by the training classes that were held out; its test score is only read off.

The highest test score of many rows is too high by the choice. A row chosen without the test classes is tested once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vicinal.bench.run import Outcome
from vicinal.bench.statistics import Estimate, paired_t_interval, t_interval
from vicinal.bench.tables import Row


@dataclass(frozen=True)
class Best:
    """The row of a kind that held-out classes choose.

    Attributes:
        kind: as ``Table.best_of`` names it.
        held_out: mean Recall@1 on held-out training classes.
        test: the table's first metric on the test classes, over seeds; None while there is no result.
    """

    kind: str
    row: str
    held_out: float
    test: Estimate | None


@dataclass(frozen=True)
class Contest:
    """The best of each kind, and the first kind's minus the second's on the test classes, paired by seed.

    Attributes:
        lacking: rows that cannot be chosen among, for they have no held-out score; while there are any, ``best`` is
            empty.
    """

    best: tuple[Best, ...]
    difference: Estimate | None
    lacking: tuple[str, ...]


def held_out_scores(row: Row, outcome: Outcome) -> dict[int, float]:
    """Recall@1 on held-out training classes: by fold of the tuning, or by seed under protocol ``validation``."""
    if row.held_out:
        return dict(enumerate(row.held_out))
    if outcome.table.protocol != "validation":
        return {}  # nothing was held out, or under `authors` the test classes themselves
    looks = {seed: line.get("selected", {}).get("value") for seed, line in outcome.lines[row.name].items()}
    return {seed: value for seed, value in looks.items() if value is not None}


def contest(outcome: Outcome) -> Contest | None:
    """The best rows of a table's kinds, over the folds or seeds that all of them have; None for a table without."""
    table = outcome.table
    if not table.best_of:
        return None
    scores = {name: held_out_scores(table.row(name), outcome) for names in table.best_of.values() for name in names}
    shared = set.intersection(*(set(found) for found in scores.values()))
    if not shared:
        return Contest((), None, tuple(name for name, found in scores.items() if not found) or tuple(scores))
    means = {name: sum(found[key] for key in shared) / len(shared) for name, found in scores.items()}
    best = []
    for kind, names in table.best_of.items():
        first = max(names, key=means.__getitem__)
        tested = list(_tested(first, outcome).values())
        best.append(Best(kind, first, means[first], t_interval(tested) if tested else None))
    return Contest(tuple(best), _between(best, outcome), ())


def _between(best: Sequence[Best], outcome: Outcome) -> Estimate | None:
    if len(best) < 2:
        return None
    ours, theirs = (_tested(one.row, outcome) for one in best[:2])
    seeds = sorted(ours.keys() & theirs.keys())
    return paired_t_interval([ours[s] for s in seeds], [theirs[s] for s in seeds]) if seeds else None


def _tested(name: str, outcome: Outcome) -> dict[int, float]:
    metric = outcome.table.metrics[0]
    return {seed: line["metrics"][metric] for seed, line in outcome.lines[name].items() if metric in line["metrics"]}
