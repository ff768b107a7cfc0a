"""Hyperparameters by cross-validation in one call: the paper's grids, and budgeted ways through
them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing

from vicinal.arguments import coerce
from vicinal.linear.objective import Array, Labels, Positions

Grid = Mapping[str, Sequence[Any]]
Strategy = Literal["random", "racing"]
Fold = tuple[Positions, Positions]  # training and test part
Score = Callable[[dict[str, Any], Fold], Array]  # accuracies of a configuration on a fold

MOST_NEIGHBORS = 40  # the paper's K ∈ {1, ..., 40}, Section 7.1.2
_HALF_STEPS = [2.0 ** (step / 2) for step in range(-10, 11)]  # 2^-5, 2^-4.5, ..., 2^5
_LAMBDAS = [round(0.1 + 0.2 * step, 1) for step in range(8)]  # 0.1, 0.3, ..., 1.5
_KEPT = 3  # one in so many survives a round of a race

PAPER_GRIDS: dict[str, Grid] = {
    "lanml-": {
        "regularization": _LAMBDAS,
        "gamma1": [-step for step in _HALF_STEPS],
        "gamma2": _HALF_STEPS,
    },
    "lanml+": {"regularization": _LAMBDAS, "gamma1": _HALF_STEPS, "gamma2": _HALF_STEPS},
    "pnca": {"alpha": [2.0**power for power in range(-8, 11)]},
    "gmml": {"t": [round(0.1 * step, 1) for step in range(1, 10)]},
}
"""The grids of Section 7.1.2: 8 x 21 x 21 points for LANML, 19 for PNCA, 9 for GMML."""


@dataclass(frozen=True)
class Trial:
    """One configuration and its mean accuracy over the folds, for k = 1, 2, ... neighbors."""

    parameters: dict[str, Any]
    accuracies: Array

    @property
    def best(self) -> float:
        """Accuracy at the best k."""
        return float(self.accuracies.max())


@dataclass(frozen=True)
class Search:
    """The result of a search.

    Attributes:
        estimator: of the best configuration, fitted on all samples unless the search was told not
            to.
        parameters: that configuration.
        neighbors: the best k for a k-nearest-neighbor classifier behind it.
        accuracy: its cross-validated accuracy. It is the best of many, so a little optimistic.
        trials: all that were tried on all folds, best first.
    """

    estimator: BaseEstimator
    parameters: dict[str, Any]
    neighbors: int
    accuracy: float
    trials: tuple[Trial, ...]


def search(
    estimator: BaseEstimator,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    grid: Grid,
    *,
    budget: int = 30,
    strategy: Strategy = "random",
    folds: int = 5,
    seed: int = 0,
    refit: bool = True,
    n_jobs: int | None = -1,
) -> Search:
    """Choose hyperparameters, and k, by the accuracy of k nearest neighbors under stratified
    cross-validation.

    Args:
        estimator: a transformer with ``fit(X, y)``, or a pipeline of some.
        X: samples, as an array or as a data frame, of which a pipeline may select columns by name.
        y: their classes.
        grid: values to choose from, by parameter: ``PAPER_GRIDS["lanml-"]``, or your own.
        budget: how many configurations are drawn; the whole grid where it has no more.
        strategy: ``"random"`` tries every drawn configuration on all folds. ``"racing"`` tries all
            on one fold, the best third on three, and the best third of those on all: 58 fits for 30
            configurations and 5 folds instead of 150. With 3 folds or fewer it is ``"random"``.
        folds: parts of the cross-validation; a class with fewer samples is not in every part.
        seed: draws configurations and folds.
        refit: whether the best configuration is fitted at the end.
        n_jobs: processes; -1 is one per core.
    """
    coerce(strategy, Strategy, "strategy")
    labels = np.asarray(y)
    configurations = _configurations(grid, budget, seed)
    # Raises for an unknown name before processes start.
    clone(estimator).set_params(**configurations[0])
    splits = _folds(labels, folds, seed)
    rounds = (
        [splits[:1], splits[1:3], splits[3:]] if strategy == "racing" and folds > 3 else [splits]
    )
    score = partial(_accuracies, estimator, X, labels)
    trials = _race(score, configurations, rounds, n_jobs)
    best = trials[0]
    chosen = clone(estimator).set_params(**best.parameters)
    fitted = chosen.fit(X, y) if refit else chosen
    return Search(
        fitted, best.parameters, int(best.accuracies.argmax()) + 1, best.best, tuple(trials)
    )


def neighbor_accuracies(
    train: Array, train_labels: Labels, test: Array, test_labels: Labels, most: int = MOST_NEIGHBORS
) -> Array:
    """Compute the accuracy of the majority among the k nearest, for k = 1 .. ``most``.

    A tie goes to the class first in order. A training set of fewer samples answers for larger k as
    for all of them.
    """
    from sklearn.neighbors import NearestNeighbors

    names, codes = np.unique(np.concatenate([train_labels, test_labels]), return_inverse=True)
    reach = min(most, len(train))
    found = NearestNeighbors(n_neighbors=reach).fit(train).kneighbors(test, return_distance=False)
    votes = np.zeros((len(test), len(names)), dtype=np.int32)
    rows = np.arange(len(test))
    right = codes[len(train) :]
    accuracies = np.empty(most)
    for k in range(reach):
        votes[rows, codes[found[:, k]]] += 1
        accuracies[k] = np.mean(votes.argmax(axis=1) == right)
    accuracies[reach:] = accuracies[reach - 1]
    return accuracies


def _configurations(grid: Grid, budget: int, seed: int) -> list[dict[str, Any]]:
    from sklearn.model_selection import ParameterGrid, ParameterSampler

    whole = ParameterGrid(dict(grid))
    if len(whole) <= budget:
        return list(whole)
    return list(ParameterSampler(dict(grid), budget, random_state=seed))


def _folds(labels: Labels, folds: int, seed: int) -> list[Fold]:
    from sklearn.model_selection import StratifiedKFold

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))


def _race(
    score: Score,
    configurations: list[dict[str, Any]],
    rounds: list[list[Fold]],
    n_jobs: int | None,
) -> list[Trial]:
    """Try configurations on the folds of one round after the other, of which each keeps the best
    third for the next.

    Those of the last round are returned, best first; of equals the one that led before, or was
    drawn first.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    curves: dict[int, list[Array]] = {number: [] for number in range(len(configurations))}
    for left, splits in zip(reversed(range(len(rounds))), rounds, strict=True):
        tasks = [(number, fold) for number in curves for fold in splits]
        results = Parallel(n_jobs=n_jobs)(
            delayed(score)(configurations[number], fold) for number, fold in tasks
        )
        for (number, _), curve in zip(tasks, results, strict=True):
            curves[number].append(curve)
        ranked = sorted(curves, key=lambda number: -np.mean(curves[number], axis=0).max())
        kept = ranked[: -(-len(ranked) // _KEPT)] if left else ranked
        curves = {number: curves[number] for number in kept}
    return [
        Trial(configurations[number], np.mean(found, axis=0)) for number, found in curves.items()
    ]


def _accuracies(
    estimator: BaseEstimator, X: npt.ArrayLike, y: Labels, parameters: dict[str, Any], fold: Fold
) -> Array:
    train, test = fold
    rows = _safe_indexing(X, train)
    others = _safe_indexing(X, test)
    with warnings.catch_warnings():
        # A configuration that does not converge is judged by what it reached.
        warnings.simplefilter("ignore")
        fitted = clone(estimator).set_params(**parameters).fit(rows, y[train])
    return neighbor_accuracies(fitted.transform(rows), y[train], fitted.transform(others), y[test])
