"""PNCA: where there is nothing to climb it says so, and why."""

import warnings

import numpy as np
import pytest

from vicinal.linear import PNCA


def test_an_alpha_too_small_to_learn_anything_warns(wine):
    with pytest.warns(UserWarning, match="nothing can be learned.*Raise alpha, or set normalize=True"):
        PNCA(alpha=2.0**-8).fit(*wine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PNCA(alpha=2.0**-8, normalize=True).fit(*wine)


def test_samples_so_far_apart_that_only_the_nearest_counts_warn(wine):
    """Every p_i is 0 or 1 then, and the start is where it ends, however wrong."""
    with pytest.warns(UserWarning, match="nothing can be learned.*Scale features"):
        fitted = PNCA().fit(1e4 * wine[0], wine[1])
    assert fitted.objective_ > 0.01 and fitted.n_iter_ == 0
    np.testing.assert_allclose(fitted.get_mahalanobis_matrix(), np.eye(13) / np.sqrt(178), atol=1e-12)
