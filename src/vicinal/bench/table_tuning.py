"""A table whose rows are tuned alike: as many trials for each, on the same class-disjoint folds, then tested once.

Each row is searched as ``tuning`` does it: trial 0 is the row as it stands, the others are drawn from its ranges
(``ranges.py``), and the score is Recall@1 of held-out training classes after the last step. Nothing is tested before
every row has had all its trials. A trial is found again by what it computed, so a stop costs nothing, and a row that
stands in several tables is tuned once.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vicinal.bench import results
from vicinal.bench.code import fingerprint
from vicinal.bench.findings import FINDINGS
from vicinal.bench.job import Job
from vicinal.bench.pool import Pool
from vicinal.bench.ranges import space_of
from vicinal.bench.results import Line
from vicinal.bench.run import check_data
from vicinal.bench.run import chosen as rows_to_run
from vicinal.bench.search_space import random_trial
from vicinal.bench.tables import Budget, Row, Table
from vicinal.bench.tuning import Chosen, Search, Trial, choose
from vicinal.files import write_text
from vicinal.training.console import Console

FOLDER = "tuning"  # below that of the results
_LAST_ALONE = ("evaluate_every=1000000", "restarts=1")  # the last epoch is always looked at, and counts alone
_KEPT = ("commit", "code", "hardware", "versions", "created", "seconds", "wall", "diverged")


@dataclass(frozen=True)
class _Asked:
    """One fold of one trial of one row."""

    row: str
    trial: int
    values: Mapping[str, str]
    job: Job


def tune_table(
    table: Table,
    budget: Budget,
    folder: Path,
    runs: Path,
    *,
    slots: int,
    console: Console,
    rows: Collection[str] = (),
    minutes: float | None = None,
    data: str = "",
    fresh: bool = False,
) -> Table | None:
    """The table at the settings that its trials chose; None while some are missing, which the same call goes on with.

    Trials go round by round over all rows. Each fold is appended to ``folder/tuning/TABLE.trials.jsonl`` as it comes;
    the choices are written to ``folder/tuning/TABLE.jsonl``, a line for each row.

    Args:
        rows: tune these alone, with their twins; what was tuned before is there all the same.
        minutes: no trial starts later than this.
        data: where this machine has the table's data, if not where the rows say.
        fresh: accept trials of this very code alone (``code.fingerprint``).
    """
    place = folder / FOLDER
    searches = {row.name: _search(row, budget) for row in table.rows}
    known, notes = _read(place)
    for note in notes:
        console.line(note, warning=True)
    asked = list(_asked(searches, budget))
    found = {one.job: line for one in asked if (line := _find(known, one.job, fresh=fresh)) is not None}
    wanted = rows_to_run(table, rows)
    todo = {replace(one.job, data=data): one for one in asked if one.row in wanted and one.job not in found}
    check_data(todo)
    console.line(
        f"{table.name}: trials {budget.trials}, rows {len(wanted & searches.keys())}, on {budget.folds} folds of the "
        f"training classes: {len(todo)} runs to do"
    )

    def record(job: Job, lines: Sequence[Mapping[str, Any]]) -> None:
        one = todo[job]
        line: Line = {"table": table.name, "row": one.row, "trial": one.trial, "values": dict(one.values)}
        line |= {**job.identity(), "overrides": list(job.overrides), "fold": list(job.fold), "score": lines[0]["last"]}
        line |= {key: lines[0][key] for key in _KEPT if key in lines[0]}
        results.append(place / f"{table.name}.trials.jsonl", line)
        found[one.job] = line

    pool = Pool(runs / "jobs", slots=slots, console=console, fresh=fresh)
    left = pool.run(todo, record, title=f"tuning {table.name}", minutes=minutes)
    if pool.failures or left:
        console.line(
            f"{table.name}: {len(pool.failures)} runs of trials failed, {left} were not started. Nothing is tested "
            "before every row has had its trials; the same command goes on",
            warning=True,
        )
        return None
    settled = {name: best for name in searches if (best := _choose(name, asked, found)) is not None}
    write_text(place / f"{table.name}.jsonl", "".join(_lines(table, budget, settled)))
    return at(table, budget, settled)


def at(table: Table, budget: Budget, settled: Mapping[str, Chosen]) -> Table:
    """The table with its rows at what was chosen, trained on all training classes and tested once."""
    rows = tuple(_settled(row, budget, settled[row.name]) if row.name in settled else row for row in table.rows)
    name = f"{table.name}-tuned"
    return replace(table, name=name, protocol="final", says=FINDINGS.get(name, ""), rows=rows, tuned=budget)


def _settled(row: Row, budget: Budget, best: Chosen) -> Row:
    kept = [word for word in row.overrides if word.partition("=")[0] not in best.trial.values]
    values = (f"{key}={value}" for key, value in best.trial.values.items())
    # The settings of trial 0 have trials behind them, too.
    tried = (row.trials or 1) - 1 + budget.trials
    scores = tuple(best.trial.scores[fold] for fold in sorted(best.trial.scores))
    return replace(row, overrides=(*kept, *values), trials=tried, held_out=scores)


def _search(row: Row, budget: Budget) -> Search:
    search = Search(row.recipe, row.overrides, space_of(row), budget.trials, budget.folds, budget.seed)
    return search.check()


def _asked(searches: Mapping[str, Search], budget: Budget) -> Iterator[_Asked]:
    for trial in range(budget.trials):
        for name, search in searches.items():
            values = random_trial(search.space, budget.seed, trial) if trial else {}
            for fold in range(budget.folds):
                job = search.job(trial, fold, values)
                job = replace(job, row=f"{name}, trial {trial}", overrides=(*job.overrides, *_LAST_ALONE))
                yield _Asked(name, trial, values, job)


def _choose(name: str, asked: Sequence[_Asked], found: Mapping[Job, Line]) -> Chosen | None:
    """The best trial of a row; None unless it has had all of them."""
    trials: dict[int, Trial] = {}
    for one in (one for one in asked if one.row == name):
        if one.job not in found:
            return None
        trial = trials.setdefault(one.trial, Trial(one.trial, dict(one.values)))
        trial.scores[one.job.fold[0]], trial.epochs[one.job.fold[0]] = found[one.job]["score"], 0
    return choose(list(trials.values()))


def _read(place: Path) -> tuple[dict[tuple[Any, ...], Line], list[str]]:
    """The trials of all tables by recipe, words and fold; of one that was done twice, the later."""
    known: dict[tuple[Any, ...], Line] = {}
    notes: list[str] = []
    for path in sorted(place.glob("*.trials.jsonl")):
        lines, said = results.read(path)
        notes += said
        for line in lines:
            known[line["recipe"], tuple(line["overrides"]), tuple(line["fold"])] = line
    return known, notes


def _find(known: Mapping[tuple[Any, ...], Line], job: Job, *, fresh: bool) -> Line | None:
    line = known.get((job.recipe, job.overrides, job.fold))
    if line is None or not results.agree(line["settings"], job.identity()["settings"]):  # the recipe may have changed
        return None
    return None if fresh and line.get("code") != fingerprint(job.recipe) else line


def _lines(table: Table, budget: Budget, settled: Mapping[str, Chosen]) -> Iterator[str]:
    for name, best in settled.items():
        row = table.row(name)
        line: Line = {"row": name, "recipe": row.recipe, "overrides": list(row.overrides), "chosen": best.trial.values}
        line |= {"trial": best.trial.number, "trials": budget.trials, "folds": budget.folds, "seed": budget.seed}
        line |= {"held_out": list(best.trial.scores.values()), "spread": best.spread}
        line |= {"within_one_standard_error": {key: list(values) for key, values in best.alike.items()}}
        yield json.dumps(line, ensure_ascii=False) + "\n"
