"""GMML against the equation that its geometric mean solves."""

import numpy as np

from vicinal.linear import GMML


def test_gmml_is_the_geometric_mean(wine):
    """At t = 1/2 M S M = D, the Riccati equation whose one positive solution the mean is."""
    X, y = wine
    metric = GMML(t=0.5, ridge=0.0).fit(X, y).get_mahalanobis_matrix()
    offsets = X[:, None] - X
    same = y[:, None] == y
    alike = same & ~np.eye(len(X), dtype=bool)
    similar, dissimilar = (np.cov(offsets[pairs].T, bias=True) for pairs in (alike, ~same))
    np.testing.assert_allclose(metric @ similar @ metric, dissimilar, rtol=1e-6, atol=1e-8)
