"""The base of the linear learners: a map L, the metric M = Lᵀ L behind it, and scikit-learn's
contract around both."""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from vicinal.arguments import check_arguments
from vicinal.errors import ConfigError, DataError
from vicinal.linear.objective import Array, Labels
from vicinal.linear.solvers import Solution, project

_TINY = 1e-3  # spread of the samples below which a start at I/√N sees no gradient


class MahalanobisTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Abstract: a subclass fits ``components_``, the rows of L; the rest follows.

    d_M(x, y) = (x - y)ᵀ M (x - y) = |Lx - Ly|²,   M = Lᵀ L
    """

    components_: Array

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Learn the metric from samples and their classes."""
        # A data frame lies column by column; in one order, equal samples round alike and give equal
        # metrics.
        samples, labels = validate_data(
            self, X, y, dtype=np.float64, order="C", ensure_min_samples=2
        )
        check_classification_targets(labels)
        check_arguments(self)
        rows = getattr(self, "n_components", None)
        if rows is not None and rows > samples.shape[1]:
            raise ConfigError(
                f"n_components must be at most {samples.shape[1]}, the number of features, got "
                f"{rows}."
            )
        self._fit(samples, labels, span(samples))
        return self

    @abstractmethod
    def _fit(self, samples: Array, labels: Labels, directions: Array) -> None:
        """Set ``components_`` from checked samples and the directions in which they vary."""

    def transform(self, X: npt.ArrayLike) -> Array:
        """Map samples by L: Euclidean distances there are the learned ones."""
        check_is_fitted(self)
        mapped: Array = validate_data(self, X, reset=False, dtype=np.float64) @ self.components_.T
        return mapped

    def get_mahalanobis_matrix(self) -> Array:
        """Return M, symmetric and positive semidefinite."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []  # solved in float64, for any type
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _keep(self, solution: Solution, directions: Array, max_iter: int) -> None:
        """Keep a solution found in coordinates x · directions, and warn where it is no minimum."""
        # Factored there: with more features than samples those coordinates are few, and M of all
        # features is large.
        rows = project(solution.factor.T @ solution.factor)[1] @ directions.T
        self.components_ = rows[: len(solution.factor)]
        self.n_iter_ = solution.iterations
        self.objective_ = solution.value
        if not solution.converged:
            warnings.warn(
                f"{type(self).__name__} has not converged: after {solution.iterations} steps "
                f"(max_iter = {max_iter}) "
                f"the objective, {solution.value:.6g}, was still falling. Raise max_iter or tol, "
                "or scale features.",
                ConvergenceWarning,
                stacklevel=4,
            )


def span(samples: Array) -> Array:
    """Return orthonormal directions, as columns, in which the samples vary: no other direction can
    matter.

    A constant feature, or one that others determine, leaves the problem here instead of making it
    singular.
    """
    _, lengths, directions = np.linalg.svd(samples - samples.mean(axis=0), full_matrices=False)
    # Rows far from the origin differ from their mean by rounding alone: nothing is learned from
    # that.
    rounding = np.abs(samples).max() * np.sqrt(samples.size)
    kept = lengths > max(lengths[0] * max(samples.shape), 4 * rounding) * np.finfo(float).eps
    if not kept.any():
        raise DataError(
            f"a metric needs samples that differ, but all {len(samples)} rows of X are equal. "
            f"Look at how X was made; a constant feature alone would be fine."
        )
    varying: Array = directions[kept].T
    return varying


def in_units(samples: Array, directions: Array) -> Array:
    """Return ``directions`` such that tiny samples vary by about 1 in these coordinates, for
    solvers that start at I.

    The optimum in scaled coordinates is the optimum, scaled; only the start and rounding differ.
    Samples that vary by more stay as they are: their start is the paper's.
    """
    spread = np.sqrt(np.square((samples - samples.mean(axis=0)) @ directions).sum(axis=1).mean())
    return directions if spread >= _TINY else directions / 2.0 ** np.round(np.log2(spread))
