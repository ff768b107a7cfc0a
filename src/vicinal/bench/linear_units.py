"""Units of ANML's Table 2 (Song et al. 2022), measured: a set, a random split of it, and a linear method before kNN.

Every method is tuned with k by 5-fold cross-validation on the training part, on a stratified 1,500 rows of it where it
has more than 3,000. Up to 400 rows, 30 configurations are drawn and tried on all folds; above, 12 race: all on one
fold, the best third on three, the best third of those on five. Iterative methods may take 100 steps of their own kind
in the search, and in the fit that follows 300 or their own default, whichever is more. The limit in the search is the
same for all but not neutral: LMNN needs some 1,000 steps where LANML needs 20, so it hurts LMNN's choice of parameters.
The last fit uses a stratified 3,000 rows at most; the neighbours are looked for among all training rows.
"""

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.bench.linear_contestants import FOLDS, PEERS, contestant
from vicinal.bench.linear_plan import Unit
from vicinal.bench.linear_sets import load, split, stratified
from vicinal.bench.results import Line

LARGE, SUBSAMPLE, RACED = 3000, 1500, 400
SEARCH_STEPS, FIT_STEPS, FIT_ROWS = 100, 300, 3000


def result(unit: Unit, folder: Path, *, cores: int = 1, versions: str = "") -> Line:
    """The line of a unit, or one with the ``error`` by which a method says that it cannot serve this split.

    Args:
        folder: of the sets' files.
        cores: processes of the search. What it finds does not depend on them.
        versions: what the line says it was measured with.
    """
    from vicinal.bench.linear_peers import PEER_VERSION

    named = {"set": unit.set, "split": unit.split, "method": unit.method}
    versions += f", metric-learn {PEER_VERSION}" * (unit.method in PEERS)
    load(unit.set, folder)  # what is wrong with a file is no result of a method
    try:
        return named | measure(unit, folder, cores) | {"versions": versions}
    except (ValueError, np.linalg.LinAlgError) as error:
        return named | {"error": str(error)[:200], "versions": versions}


def measure(unit: Unit, folder: Path, cores: int = 1) -> Line:
    """``accuracy`` with the k that cross-validation chose, ``oracle`` with the best on the test part, and its cost."""
    from vicinal.linear import neighbour_accuracies, search

    start, worked = time.perf_counter(), _processor_seconds()
    train, train_y, test, test_y = split(*load(unit.set, folder), unit.split)
    estimator, grid = contestant(unit.method, int(np.bincount(train_y)[np.unique(train_y)].min()))
    own_steps = estimator.get_params().get("max_iter")
    limit = max(own_steps or 0, FIT_STEPS)
    if own_steps is not None:
        estimator.set_params(max_iter=SEARCH_STEPS)
    race = len(train) > RACED
    budget = unit.raced if race else unit.budget
    try:
        found = search(
            estimator,
            train,
            train_y,
            grid,
            strategy="racing" if race else "random",
            budget=budget,
            folds=FOLDS,
            seed=unit.split,
            samples=SUBSAMPLE if len(train) > LARGE else None,
            refit=False,
            n_jobs=cores,
            progress=False,
        )
    finally:
        if cores > 1:
            _end_processes()
    fitted, rows = found.estimator, stratified(train_y, FIT_ROWS, unit.split)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if own_steps is not None:
            fitted.set_params(max_iter=limit)
        fitted.fit(train[rows], train_y[rows])
    steps = int(getattr(fitted, "n_iter_", 0))
    curve = neighbour_accuracies(fitted.transform(train), train_y, fitted.transform(test), test_y)
    line = {
        "budget": budget,
        "search_steps": SEARCH_STEPS,
        "accuracy": float(curve[found.neighbours - 1]),
        "oracle": float(curve.max()),
        "neighbours": found.neighbours,
        "validation": found.accuracy,
        "parameters": {name: _plain(value) for name, value in found.parameters.items()},
        "steps": steps,
        # Peers run out of steps in silence; metric-learn's n_iter_ is then one less than the limit.
        "converged": steps < limit - 1 and not any("converge" in str(item.message) for item in caught),
        "trained_on": len(train),
        "fitted_on": len(rows),
        "tested_on": len(test),
        "seconds": round(time.perf_counter() - start, 2),
        "cpu": round(_processor_seconds() - worked, 2),
    }
    return line if cores == 1 else line | {"cores": cores}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool)) else float(value)


def _processor_seconds() -> float:
    """Of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


def _end_processes() -> None:
    """Those of the search, which joblib keeps for the next one: their time is to count, and their cores to be free."""
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

    get_reusable_executor().shutdown(wait=True)
