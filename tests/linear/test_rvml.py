"""RVML against the normal equations of its regression."""

import numpy as np

from vicinal.linear import RVML


def test_rvml_solves_its_regression(wine):
    X, y = wine
    fitted = RVML(regularization=0.1).fit(X, y)
    centered = X - X.mean(axis=0)
    targets = np.eye(3)[y] - np.eye(3)[y].mean(axis=0)
    residual = (
        centered.T @ (centered @ fitted.components_.T - targets) / len(X)
        + 0.1 * fitted.components_.T
    )
    np.testing.assert_allclose(residual, 0, atol=1e-12)
