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

        samples, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(labels)
        return samples, labels

    def _keep(self, solution: Solution, directions: Array, max_iter: int) -> None:
        """Take over a solution found in coordinates x · directions; warn where it is no minimum, or says nothing."""
        found = solution.factor @ directions.T
        self.components_ = project(found.T @ found)[1][: len(found)]
        self.n_iter_, self.objective_ = solution.iterations, solution.value
        if not solution.converged:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"{type(self).__name__} has not converged: after {solution.iterations} steps (max_iter = {max_iter}) "
                f"the objective, {solution.value:.6g}, was still falling. Raise max_iter or tol, or scale features.",
                ConvergenceWarning,
                stacklevel=3,
            )


def span(samples: Array) -> Array:
    """Orthonormal directions, as columns, in which the samples vary: no other direction can matter.

    A constant feature, or one that others determine, leaves the problem here instead of making it singular.
    """
    centred = samples - samples.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    kept = lengths > lengths[0] * max(samples.shape) * np.finfo(float).eps
    if not kept.any():
        raise DataError(
            f"a metric needs samples that differ, but all {len(samples)} rows of X are equal. "
            f"Look at how X was made; a constant feature alone would be fine."
        )
    varying: Array = directions[kept].T
    return varying


def require(name: str, value: object, *, least: float, open: bool = False, whole: bool = False) -> None:
    """Refuse a setting that is no number, not whole where it must be, or too small."""
    kind = numbers.Integral if whole else numbers.Real
    if type(value) is not bool and isinstance(value, kind):
        number = float(value)
        if np.isfinite(number) and (number > least or (number == least and not open)):
            return
    noun, relation = "a whole number" if whole else "a number", "above" if open else "of at least"
    raise ConfigError(f"{name} is {noun} {relation} {least:g}, but {value!r} was given. Set {name} accordingly.")


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
