"""GMML against the equation that its geometric mean solves."""

import numpy as np

from vicinal.linear import GMML


def test_gmml_is_the_geometric_mean(wine):
    """At t = 1/2 M S M = D, the Riccati equation whose one positive solution the mean is."""
    X, y = wine
    X = X - X.mean(axis=0)
    metric = GMML(t=0.5, ridge=0.0).fit(X, y).get_mahalanobis_matrix()
    similar = np.zeros((13, 13))
    dissimilar = np.zeros((13, 13))
    counts = [0, 0]
    for i in range(len(X)):
        offsets = X - X[i]
        same = y == y[i]
        similar += offsets[same].T @ offsets[same]
        dissimilar += offsets[~same].T @ offsets[~same]
        counts[0] += same.sum() - 1
        counts[1] += (~same).sum()
    np.testing.assert_allclose(
        metric @ (similar / counts[0]) @ metric, dissimilar / counts[1], rtol=1e-6, atol=1e-8
    )
