"""Hyper-parameters by cross-validation in one call: the paper's grids, and budgeted ways through them."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from vicinal.errors import ConfigError, DataError, unknown
from vicinal.linear.neighbourhoods import Array
from vicinal.linear.scoring import neighbour_accuracies

Grid = Mapping[str, Sequence[Any]]
Strategy = Literal["random", "racing", "halving", "grid"]
Parts = list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]

_HALF_STEPS = [2.0 ** (step / 2) for step in range(-10, 11)]  # 2^-5, 2^-4.5, ..., 2^5
_LAMBDAS = [round(0.1 + 0.2 * step, 1) for step in range(8)]  # 0.1, 0.3, ..., 1.5
_KEPT = 3  # one in so many survives a round; one of halving has so many times the samples of the one before

PAPER_GRIDS: dict[str, Grid] = {
    "lanml-": {"regularization": _LAMBDAS, "gamma1": [-step for step in _HALF_STEPS], "gamma2": _HALF_STEPS},
    "lanml+": {"regularization": _LAMBDAS, "gamma1": _HALF_STEPS, "gamma2": _HALF_STEPS},
    "pnca": {"alpha": [2.0**power for power in range(-8, 11)]},
    "gmml": {"t": [round(0.1 * step, 1) for step in range(1, 10)]},
}
"""The grids of Section 7.1.2: 8 x 21 x 21 points for LANML, 19 for PNCA, 9 for GMML."""


@dataclass(frozen=True)
class Trial:
    """One configuration and its mean accuracy over the folds, for k = 1, 2, ... neighbours."""

    parameters: dict[str, Any]
    accuracies: Array

    @property
    def best(self) -> float:
        """Accuracy at the best k."""
        return float(self.accuracies.max())


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        estimator: of the best configuration, fitted on all samples unless the search was told not to.
        parameters: that configuration.
        neighbours: the best k for a k-nearest-neighbour classifier behind it.
        accuracy: its cross-validated accuracy. It is the best of many, so a little flattering.
        trials: all that were tried on all samples and folds, best first.
    """

    estimator: BaseEstimator
    parameters: dict[str, Any]
    neighbours: int
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
    samples: int | None = None,
    refit: bool = True,
    n_jobs: int | None = -1,
    progress: bool = True,
) -> Search:
    """Choose hyper-parameters, and k, by the accuracy of k nearest neighbours under stratified cross-validation.

    Args:
        estimator: a transformer with ``fit(X, y)``, or a pipeline of some.
        X: samples, as an array or as a data frame, of which a pipeline may select columns by name.
        y: their classes.
        grid: values to choose from, by parameter: ``PAPER_GRIDS["lanml-"]``, or your own.
        budget: how many configurations are drawn; ``"grid"`` tries all and needs none.
        strategy: ``"random"`` tries every drawn configuration on all samples and folds. ``"racing"`` tries all on one
            fold, the best third on three, and the best third of those on all: 58 fits for 30 configurations and 5 folds
            instead of 150. ``"halving"`` tries all on a ninth of the samples, the best third on a third, and the best
            third of those on all. With 3 folds there is nothing to race for, with 3 configurations nothing to halve:
            both are ``"random"`` then. ``"grid"`` is the whole grid.
        folds: parts of the cross-validation; a class with fewer samples is not in every part.
        seed: draws configurations, folds and subsamples.
        samples: search on a stratified subsample of this size where X is larger, of each class at least one sample a
            fold; the result is fitted on all.
        refit: whether the best configuration is fitted at the end.
        n_jobs: processes; -1 is one per core.
        progress: whether a bar is shown, on a terminal.
    """
    if strategy not in ("random", "racing", "halving", "grid"):
        raise ConfigError(unknown("strategy", str(strategy), ("random", "racing", "halving", "grid")))
    if budget < 1:
        raise ConfigError(f"a search tries at least 1 configuration, but budget = {budget} was given.")
    if samples is not None and samples < 1:
        raise ConfigError(f"a subsample holds at least 1 sample, but samples = {samples} was given; None is all.")
    if not hasattr(estimator, "transform"):
        raise ConfigError(
            f"a search looks for neighbours among transformed samples, but {estimator} has no `transform`. Leave out "
            f"the classifier at its end; the search finds its k, too."
        )
    labels = _labels(X, y, folds)
    configurations = _configurations(grid, budget, strategy, seed)
    clone(estimator).set_params(**configurations[0])  # a name that it does not know is refused before processes start
    within = _subsample(labels, len(labels) if samples is None else samples, folds, seed)
    shares = (_KEPT**2, _KEPT, 1) if strategy == "halving" and len(configurations) > _KEPT else (1,)
    for share in shares:
        part = within[_subsample(labels[within], len(within) // share, folds, seed)]
        parts = _folds(labels[part], folds, seed)
        rounds = [parts[:1], parts[1:3], parts[3:]] if strategy == "racing" and folds > 3 else [parts]
        trials = _tried(estimator, _rows(X, part), labels[part], configurations, rounds, n_jobs, progress)
        configurations = [trial.parameters for trial in trials[: -(-len(trials) // _KEPT)]]
    best = trials[0]
    chosen = clone(estimator).set_params(**best.parameters)
    fitted = chosen.fit(X, y) if refit else chosen
    return Search(fitted, best.parameters, int(best.accuracies.argmax()) + 1, best.best, tuple(trials))


def _labels(X: npt.ArrayLike, y: npt.ArrayLike, folds: int) -> npt.NDArray[Any]:
    from sklearn.utils import check_consistent_length, column_or_1d

    check_consistent_length(X, y)
    labels: npt.NDArray[Any] = column_or_1d(y, warn=True)
    names, counts = np.unique(labels, return_counts=True)
    if counts.max() < folds:
        raise DataError(
            f"{folds} folds need a class with a sample for each, but the largest of the {len(names)} classes in y has "
            f"{counts.max()}. Lower folds."
        )
    return labels


def _configurations(grid: Grid, budget: int, strategy: Strategy, seed: int) -> list[dict[str, Any]]:
    from sklearn.model_selection import ParameterGrid, ParameterSampler

    if not isinstance(grid, Mapping):
        raise ConfigError(
            f"a grid names the values of each parameter, but {grid!r} was given. Use one of PAPER_GRIDS, or "
            f'{{"gamma1": [-8.0, -1.0]}} for example.'
        )
    whole = ParameterGrid(dict(grid))
    if strategy == "grid" or len(whole) <= budget:
        return list(whole)
    return list(ParameterSampler(dict(grid), budget, random_state=seed))


def _rows(X: npt.ArrayLike, positions: npt.NDArray[np.intp]) -> Any:
    from sklearn.utils import _safe_indexing

    return _safe_indexing(X, positions)


def _subsample(labels: npt.NDArray[Any], size: int, least: int, seed: int) -> npt.NDArray[np.intp]:
    """Positions of a subsample with each class in proportion, and at least so many of each that has them."""
    if size >= len(labels):
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
    shares = [own[: max(least, round(size * len(own) / len(labels)))] for own in members]
    return np.sort(np.concatenate(shares))


def _folds(labels: npt.NDArray[Any], folds: int, seed: int) -> Parts:
    from sklearn.model_selection import StratifiedKFold

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(labels, labels))


def _tried(
    estimator: BaseEstimator,
    X: npt.ArrayLike,
    y: npt.NDArray[Any],
    configurations: list[dict[str, Any]],
    rounds: list[Parts],
    n_jobs: int | None,
    progress: bool,
) -> list[Trial]:
    """Configurations on the folds of one round after the other, of which each keeps the best third for the next.

    Those of the last round are returned, best first; of equals the one that led before, or was drawn first.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    curves: dict[int, list[Array]] = {number: [] for number in range(len(configurations))}
    for last, parts in enumerate(rounds, start=1 - len(rounds)):
        tasks = [(number, part) for number in curves for part in parts]
        results: Iterable[Array] = Parallel(n_jobs=n_jobs, return_as="generator")(
            delayed(_accuracies)(estimator, configurations[number], X, y, *part) for number, part in tasks
        )
        for (number, _), curve in zip(tasks, _followed(results, len(tasks), progress), strict=True):
            curves[number].append(curve)
        ranked = sorted(curves, key=lambda number: -np.mean(curves[number], axis=0).max())
        curves = {number: curves[number] for number in (ranked[: -(-len(ranked) // _KEPT)] if last else ranked)}
    return [Trial(configurations[number], np.mean(found, axis=0)) for number, found in curves.items()]


def _accuracies(
    estimator: BaseEstimator,
    parameters: dict[str, Any],
    X: npt.ArrayLike,
    y: npt.NDArray[Any],
    train: npt.NDArray[np.intp],
    test: npt.NDArray[np.intp],
) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a configuration that does not converge is judged by what it reached
        fitted = clone(estimator).set_params(**parameters).fit(_rows(X, train), y[train])
    return neighbour_accuracies(fitted.transform(_rows(X, train)), y[train], fitted.transform(_rows(X, test)), y[test])


def _followed(results: Iterable[Array], total: int, progress: bool) -> Iterable[Array]:
    if not progress:
        return results
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(results, "search", total, console=console, disable=not console.is_terminal, transient=True)
