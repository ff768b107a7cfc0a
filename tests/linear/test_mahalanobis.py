"""What all linear learners share: scikit-learn's contract, a map and its metric, clear errors and
warnings."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.errors import ConfigError, DataError
from vicinal.linear import GMML, LANML, PNCA, RVML

ALL = [LANML(), LANML(gamma1=1.0), PNCA(), GMML(), RVML()]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:the optimum is M = 0")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [LANML(max_iter=20), LANML(gamma1=1.0, max_iter=20), PNCA(max_iter=20), GMML(), RVML()]
)
def test_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_neighbors_are_right_more_often_than_by_chance_and_the_metric_is_the_maps(estimator, wine):
    X, y = wine
    fitted = clone(estimator).fit(X[::2], y[::2])
    metric = fitted.get_mahalanobis_matrix()
    np.testing.assert_allclose(metric, metric.T)
    assert np.linalg.eigvalsh(metric)[0] > -1e-9
    mapped = fitted.transform(X)
    offset = X[0] - X[1]
    assert offset @ metric @ offset == pytest.approx(((mapped[0] - mapped[1]) ** 2).sum())
    score = KNeighborsClassifier(3).fit(mapped[::2], y[::2]).score(mapped[1::2], y[1::2])
    assert score > 0.88


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_constant_feature_gets_no_weight_and_more_features_than_samples_are_no_trouble(
    estimator, wine, draw
):
    X = wine[0][::8]
    y = wine[1][::8]
    wide = np.hstack([X, np.ones((len(X), 1)), draw.standard_normal((len(X), 40))])
    metric = clone(estimator).fit(wide, y).get_mahalanobis_matrix()
    assert np.isfinite(metric).all() and np.abs(metric[13]).max() < 1e-9 * np.abs(metric).max()


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_bad_data_raise_with_what_was_given(estimator, wine):
    with pytest.raises(DataError, match="at least 2 classes, but y holds only 1"):
        clone(estimator).fit(wine[0], np.zeros(178, dtype=int))
    for value in (1.0, 0.1, 1e8 + 0.1):  # the mean of equal numbers may be another
        with pytest.raises(DataError, match="all 6 rows of X are equal"):
            clone(estimator).fit(np.full((6, 2), value), [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("estimator", ALL[:4], ids=str)
def test_samples_that_allow_no_pair_raise(estimator):
    with pytest.raises(DataError, match="each of the 4 classes in y has 1 sample"):
        clone(estimator).fit(np.eye(4), np.arange(4))


def test_a_class_of_one_sample_is_kept_away_from(wine):
    X = wine[0][::4]
    y = wine[1][::4].copy()
    y[0] = 7
    assert LANML().fit(X, y).components_.any() and PNCA().fit(X, y).components_.any()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LANML(gamma2=0.0), "gamma2 must be above 0, got 0.0"),
        (LANML(gamma1=np.nan), "gamma1 is a finite number, got nan"),
        (LANML(regularization=-1), "regularization must be at least 0"),
        (LANML(n_similar=0), "n_similar must be at least 1"),
        (LANML(n_components=99), "n_components must be at most 13, the number of features, got 99"),
        (LANML(max_iter=2.5), "max_iter is a whole number"),
        (PNCA(alpha=-1), "alpha must be above 0, got -1"),
        (GMML(t=1.5), "t must be at least 0 and at most 1, got 1.5"),
        (RVML(regularization=0), "regularization must be above 0"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_raise(estimator, message, wine):
    with pytest.raises(ConfigError, match=message):
        estimator.fit(*wine)


@pytest.mark.parametrize(
    "estimator", [LANML(max_iter=1), LANML(gamma1=1.0, max_iter=1), PNCA(max_iter=1)], ids=str
)
def test_a_fit_that_has_not_converged_warns_with_what_to_do(estimator, wine):
    with pytest.warns(ConvergenceWarning, match=r"after 1 steps \(max_iter = 1\).*Raise max_iter"):
        estimator.fit(*wine)


def test_components_bound_the_rank(wine):
    for estimator in (
        LANML(n_components=2),
        LANML(gamma1=1.0, n_components=2),
        PNCA(n_components=2),
    ):
        assert estimator.fit(*wine).transform(wine[0]).shape == (178, 2)


@pytest.mark.parametrize("estimator", [LANML(), LANML(gamma1=1.0), PNCA()], ids=str)
def test_tiny_samples_are_learned_from_as_their_multiples_are(estimator, wine):
    """M of samples 2^-40 times as long is 2^80 times as large, and separates the classes as
    well."""
    X, y = wine
    expected = clone(estimator).fit(X, y)
    tiny = clone(estimator).fit(2.0**-40 * X, y)
    assert tiny.n_iter_ > 2
    assert tiny.objective_ == pytest.approx(expected.objective_, rel=0.2, abs=1e-3)
    mapped = tiny.transform(2.0**-40 * X)
    assert KNeighborsClassifier(3).fit(mapped[::2], y[::2]).score(mapped[1::2], y[1::2]) > 0.88
