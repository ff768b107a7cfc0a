"""What all linear learners share: a map L, the metric M = Lᵀ L behind it, and scikit-learn's contract around both."""

import numbers
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from vicinal.errors import ConfigError, DataError
from vicinal.linear.neighbourhoods import Array
from vicinal.linear.solvers import Solution, project

_FAR = 1e50  # the sixth power of it is still a number: GMML's products of scatters


class MahalanobisTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Abstract: a subclass fits ``components_``, the rows of L; the rest follows.

    d_M(x, y) = (x - y)ᵀ M (x - y) = |Lx - Ly|²,   M = Lᵀ L
    """

    components_: Array

    def transform(self, X: npt.ArrayLike) -> Array:
        """Samples mapped by L: Euclidean distances there are the learnt ones."""
        from sklearn.utils.validation import check_is_fitted, validate_data

        check_is_fitted(self)
        mapped: Array = validate_data(self, X, reset=False, dtype=np.float64) @ self.components_.T
        return mapped

    def get_mahalanobis_matrix(self) -> Array:
        """M, symmetric and positive semidefinite."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self.components_.T @ self.components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []  # solved in float64, whatever comes
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _checked(self, X: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, npt.NDArray[Any]]:
        """Samples as float64 and their labels, both checked."""
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        # A data frame lies column by column; in one order, equal samples round alike and give equal metrics.
        samples, labels = validate_data(self, X, y, dtype=np.float64, order="C", ensure_min_samples=2)
        check_classification_targets(labels)
        return samples, labels

    def _keep(self, solution: Solution, directions: Array, max_iter: int) -> None:
        """Take over a solution found in coordinates x · directions; warn where it is no minimum, or says nothing."""
        self.components_ = as_map(solution.factor.T @ solution.factor, directions)[: len(solution.factor)]
        self.n_iter_, self.objective_ = solution.iterations, solution.value
        if not solution.converged:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"{type(self).__name__} has not converged: after {solution.iterations} steps (max_iter = {max_iter}) "
                f"the objective, {solution.value:.6g}, was still falling. Raise max_iter or tol, or scale features.",
                ConvergenceWarning,
                stacklevel=3,
            )


def as_map(metric: Array, directions: Array) -> Array:
    """L of a metric in coordinates x · directions, rows by falling length.

    The factor is taken there: with more features than samples those coordinates are few, and a decomposition of all
    features' M would take cubic time for the same rows.
    """
    rows: Array = project(metric)[1] @ directions.T
    return rows


def span(samples: Array) -> Array:
    """Orthonormal directions, as columns, in which the samples vary: no other direction can matter.

    A constant feature, or one that others determine, leaves the problem here instead of making it singular.
    """
    centred = samples - samples.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    # Rows far from the origin differ from their mean by rounding alone: nothing is learnt from that.
    rounding = np.abs(samples).max() * np.sqrt(samples.size)
    kept = lengths > max(lengths[0] * max(samples.shape), 4 * rounding) * np.finfo(float).eps
    if not kept.any():
        raise DataError(
            f"a metric needs samples that differ, but all {len(samples)} rows of X are equal. "
            f"Look at how X was made; a constant feature alone would be fine."
        )
    if not 1 / _FAR < lengths[0] < _FAR:
        raise DataError(
            f"a metric is learnt from squares of differences, but X varies by {lengths[0]:.1g}, whose powers leave the "
            f"range of float64. Scale features, for example with scikit-learn's StandardScaler."
        )
    varying: Array = directions[kept].T
    return varying


def require(
    name: str, value: object, *, least: float = -np.inf, most: float = np.inf, open: bool = False, whole: bool = False
) -> None:
    """Refuse a setting that is no number, not whole where it must be, too small or too large."""
    kind = numbers.Integral if whole else numbers.Real
    if type(value) is not bool and isinstance(value, kind):
        number = float(value)
        if np.isfinite(number) and (least < number <= most or (number == least and not open)):
            return
    noun = "a whole number" if whole else "a finite number"
    relation = (f" above {least:g}" if open else f" of at least {least:g}") if np.isfinite(least) else ""
    relation += f" and at most {most:g}" if np.isfinite(most) else ""
    raise ConfigError(f"{name} is {noun}{relation}, but {value!r} was given. Set {name} accordingly.")


def require_components(n_components: int | None, features: int) -> None:
    """Refuse a number of rows of L that is not between 1 and the number of features."""
    if n_components is None:
        return
    require("n_components", n_components, least=1, whole=True)
    if n_components > features:
        raise ConfigError(
            f"n_components = {n_components} was asked for, but X has {features} features, and a linear map keeps no "
            f"more. Set n_components to {features} or less, or to None."
        )


@contextmanager
def threads(n_jobs: int | None) -> Iterator[int]:
    """scikit-learn's ``n_jobs`` as a number of threads; with several, BLAS keeps to one, or both would fight."""
    from joblib import effective_n_jobs  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    count = int(effective_n_jobs(n_jobs))
    with threadpool_limits(1 if count > 1 else None):
        yield count
