"""Hyperparameters and k by cross-validation, on all folds or in a race that drops what is poor on
one."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from vicinal.linear.objective import Array, Labels, Positions

Grid = Mapping[str, Sequence[Any]]
Fold = tuple[Positions, Positions]  # training and test part
Score = Callable[[dict[str, Any], Fold], Array]  # accuracies of a configuration on a fold

MOST_NEIGHBORS = 40  # the paper's K ∈ {1, ..., 40}, Section 7.1.2
_KEPT = 3  # one in so many survives a round of a race


@dataclass(frozen=True)
class Trial:
    """One configuration and its mean accuracy over the folds, for k = 1, 2, ... neighbors."""

    parameters: dict[str, Any]
    accuracies: Array

    @property
    def best(self) -> float:
        """Accuracy at the best k."""
        return float(self.accuracies.max())

    @property
    def neighbors(self) -> int:
        """That k."""
        return int(self.accuracies.argmax()) + 1


def search(
    estimator: BaseEstimator,
    X: Array,
    y: Labels,
    grid: Grid,
    *,
    budget: int,
    race: bool,
    folds: int,
    seed: int,
) -> list[Trial]:
    """Return the configurations that were tried on all folds, best first.

    Args:
        estimator: a transformer with ``fit(X, y)``.
        X: samples.
        y: their classes.
        grid: values to choose from, by parameter.
        budget: how many configurations are drawn; the whole grid where it has no more.
        race: try all configurations on one fold, the best third on three, and the best third of
            those on all: 58 fits for 30 configurations and 5 folds instead of 150.
        folds: parts of the cross-validation; a class with fewer samples is not in every part.
        seed: draws configurations and folds.
    """
    configurations = _configurations(grid, budget, seed)
    splits = _folds(y, folds, seed)
    rounds = [splits[:1], splits[1:3], splits[3:]] if race else [splits]
    return _race(partial(_accuracies, estimator, X, y), configurations, rounds)


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
) -> list[Trial]:
    """Try configurations on the folds of one round after the other, of which each keeps the best
    third for the next.

    Those of the last round are returned, best first; of equals the one that led before, or was
    drawn first.
    """
    curves: dict[int, list[Array]] = {number: [] for number in range(len(configurations))}
    for left, splits in zip(reversed(range(len(rounds))), rounds, strict=True):
        for number, found in curves.items():
            found += [score(configurations[number], fold) for fold in splits]
        ranked = sorted(curves, key=lambda number: -np.mean(curves[number], axis=0).max())
        kept = ranked[: -(-len(ranked) // _KEPT)] if left else ranked
        curves = {number: curves[number] for number in kept}
    return [
        Trial(configurations[number], np.mean(found, axis=0)) for number, found in curves.items()
    ]


def _accuracies(
    estimator: BaseEstimator, X: Array, y: Labels, parameters: dict[str, Any], fold: Fold
) -> Array:
    train, test = fold
    with warnings.catch_warnings():
        # A configuration that does not converge is judged by what it reached.
        warnings.simplefilter("ignore")
        fitted = clone(estimator).set_params(**parameters).fit(X[train], y[train])
    mapped = fitted.transform(X)
    return neighbor_accuracies(mapped[train], y[train], mapped[test], y[test])
