"""PNCA: where there is nothing to climb it says so, and why."""

import itertools

import numpy as np
import pytest
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from vicinal.linear import PNCA
from vicinal.linear.estimators import sigmoid
from vicinal.linear.objective import Neighborhoods, Objective


def test_an_alpha_too_small_to_learn_anything_warns(wine):
    with pytest.warns(UserWarning, match="nothing can be learned.*raise alpha = "):
        PNCA(alpha=2.0**-8).fit(*wine)


def test_samples_so_far_apart_that_only_the_nearest_counts_warn(wine):
    """Every p_i is 0 or 1 then, and the start is where it ends, however wrong."""
    with pytest.warns(UserWarning, match="nothing can be learned.*Scale features"):
        fitted = PNCA().fit(1e4 * wine[0], wine[1])
    assert fitted.objective_ > 0.01 and fitted.n_iter_ == 0
    np.testing.assert_allclose(
        fitted.get_mahalanobis_matrix(), np.eye(13) / np.sqrt(178), atol=1e-12
    )


@pytest.mark.parametrize(("seed", "size"), [(0, 124), (3, 124), (2, 302)])
def test_it_is_never_worse_than_nca_at_alpha_1(seed, size):
    """Monk 1, whose label is an interaction of features (a1 = a2, or a5 = 1): leveled coordinates
    alone lose there."""
    values = [range(count) for count in (3, 3, 2, 3, 4, 2)]
    table = np.array([*itertools.product(*values)], dtype=float)
    labels = ((table[:, 0] == table[:, 1]) | (table[:, 4] == 0)).astype(int)
    part = np.random.default_rng(seed).permutation(len(labels))[:size]
    X = table[part]
    y = labels[part]
    start = np.eye(6) / size**0.25  # of both
    nca = NeighborhoodComponentsAnalysis(init=start, max_iter=500, tol=1e-6).fit(X, y)
    objective = Objective(Neighborhoods.among(X, y, None), 1.0, 1.0, sigmoid, sums=True)
    assert PNCA().fit(X, y).objective_ <= objective.at(nca.components_).value + 1e-3
