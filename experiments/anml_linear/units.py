"""What ANML's Table 2 (Song et al. 2022) is made of: a set, a random split of it, and a linear
method before kNN.

Every method is tuned with k by 5-fold cross-validation on the training part, on a stratified 1,500
rows of it where it has more than 3,000. Up to 400 rows, 30 configurations are drawn and tried on
all folds; above, 12 race: all on one fold, the best third on three, the best third of those on
five. Iterative methods may take 100 steps of their own kind in the search, and in the fit that
follows 300 or their own default, whichever is more. The limit in the search is the
same for all but not neutral: LMNN needs some 1,000 steps where LANML needs 20, so it hurts LMNN's
choice of parameters. The last fit uses a stratified 3,000 rows at most; the neighbors are searched
among all training rows.
"""

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sets import load, split, stratified

from methods import FOLDS, PEERS, contestant
from peers import PEER_VERSION
from vicinal.bench.pool import Task
from vicinal.training.run import commit

LARGE = 3000
SUBSAMPLE = 1500
RACED = 400
SEARCH_STEPS = 100
FIT_STEPS = 300
FIT_ROWS = 3000
NAME = "anml_linear"
# By training cost: samples, then features.
SETS = (
    "iris",
    "wine",
    "glass",
    "solar_flare",
    "ecoli",
    "cars",
    "monk1",
    "australian",
    "vehicle",
    "german",
    "isolet1",
    "coil20",
    "usps",
    "pendigits",
    "letter",
)


@dataclass(frozen=True)
class Unit:
    """What is measured at a time.

    Attributes:
        budget: configurations that are tried where the training part is small.
        raced: configurations that race where it is large.
    """

    set: str
    split: int
    method: str
    budget: int
    raced: int

    @property
    def key(self) -> tuple[str, int, str]:
        """By which its result is found again."""
        return self.set, self.split, self.method

    def task(self, data: Path) -> Task:
        name = f"{self.set} {self.split} {self.method}"
        return Task(name, f"{__file__}:perform", {**asdict(self), "data": str(data)}, name)


@dataclass(frozen=True)
class Plan:
    """Which units a table is made of.

    Attributes:
        name: of the page.
        command: that makes it.
        kept: the name of its results file.
    """

    name: str
    title: str
    command: str
    kept: str
    sets: tuple[str, ...]
    splits: int
    budget: int
    raced: int

    def units(self, methods: Sequence[str]) -> Iterator[Unit]:
        """Split by split, so that a run that is stopped has whole splits of all sets; the long ones
        first in each."""
        for number in range(self.splits):
            for name in reversed(self.sets):
                for method in reversed(methods):
                    yield Unit(name, number, method, self.budget, self.raced)


FULL = Plan(
    *(
        NAME,
        "ANML's linear methods on 15 tables (Song et al. 2022, Table 2)",
        f"python experiments/{NAME}",
        "tabular",
    ),
    *(SETS, 30, 30, 12),
)


def perform(folder: Path, *, data: str, **unit: Any) -> list[dict[str, Any]]:
    """The line of a unit, or one with the ``error`` by which a method says that it cannot serve
    this split."""
    return [result(Unit(**unit), Path(data))]


def result(unit: Unit, data: Path) -> dict[str, Any]:
    named = {"set": unit.set, "split": unit.split, "method": unit.method}
    made = versions() + f", metric-learn {PEER_VERSION}" * (unit.method in PEERS)
    load(unit.set, data)  # what is wrong with a file is no result of a method
    try:
        return named | measure(unit, data) | {"versions": made}
    except (ValueError, np.linalg.LinAlgError) as error:
        return named | {"error": str(error)[:200], "versions": made}


def measure(unit: Unit, data: Path) -> dict[str, Any]:
    """``accuracy`` with the k that cross-validation chose, ``oracle`` with the best on the test
    part, and its cost."""
    from tuning import neighbor_accuracies, search

    start = time.perf_counter()
    worked = sum(os.times()[:4])
    train, train_y, test, test_y = split(*load(unit.set, data), unit.split)
    estimator, grid = contestant(unit.method, int(np.bincount(train_y)[np.unique(train_y)].min()))
    own_steps = estimator.get_params().get("max_iter")
    limit = max(own_steps or 0, FIT_STEPS)
    if own_steps is not None:
        estimator.set_params(max_iter=SEARCH_STEPS)
    race = len(train) > RACED
    budget = unit.raced if race else unit.budget
    tried = stratified(train_y, SUBSAMPLE if len(train) > LARGE else len(train), unit.split, FOLDS)
    best = search(
        estimator,
        train[tried],
        train_y[tried],
        grid,
        race=race,
        budget=budget,
        folds=FOLDS,
        seed=unit.split,
    )[0]
    fitted = estimator.set_params(**best.parameters)
    rows = stratified(train_y, FIT_ROWS, unit.split)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if own_steps is not None:
            fitted.set_params(max_iter=limit)
        fitted.fit(train[rows], train_y[rows])
    steps = int(getattr(fitted, "n_iter_", 0))
    curve = neighbor_accuracies(fitted.transform(train), train_y, fitted.transform(test), test_y)
    return {
        "budget": budget,
        "accuracy": float(curve[best.neighbors - 1]),
        "oracle": float(curve.max()),
        "neighbours": best.neighbors,
        "parameters": {name: _plain(value) for name, value in best.parameters.items()},
        "steps": steps,
        # Peers run out of steps without a warning; metric-learn's n_iter_ is then one less than the
        # limit.
        "converged": steps < limit - 1
        and not any("converge" in str(item.message) for item in caught),
        "trained_on": len(train),
        "tested_on": len(test),
        "seconds": round(time.perf_counter() - start, 2),
        "cpu": round(sum(os.times()[:4]) - worked, 2),
    }


def versions() -> str:
    """What lines are measured with."""
    packages = ", ".join(
        f"{package} {version(package)}" for package in ("numpy", "scipy", "scikit-learn")
    )
    return f"commit {commit() or 'unknown'}, {packages}"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool)) else float(value)
