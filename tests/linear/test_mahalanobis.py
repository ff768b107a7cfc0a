"""What all linear learners owe: scikit-learn's contract, a map and its metric, clear refusals and warnings."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from vicinal.errors import ConfigError, DataError
from vicinal.linear import GMML, LANML, PNCA, RVML

ALL = [LANML(), LANML(gamma1=1.0), PNCA(), GMML(), RVML()]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:the optimum is M = 0")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([LANML(max_iter=20), LANML(gamma1=1.0, max_iter=20), PNCA(max_iter=20), GMML(), RVML()])
def test_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_neighbours_are_right_more_often_than_by_chance_and_the_metric_is_the_maps(estimator, wine):
    X, y = wine
    fitted = clone(estimator).fit(X[::2], y[::2])
    metric = fitted.get_mahalanobis_matrix()
    np.testing.assert_allclose(metric, metric.T)
    assert np.linalg.eigvalsh(metric)[0] > -1e-9
    mapped, offset = fitted.transform(X), X[0] - X[1]
    assert offset @ metric @ offset == pytest.approx(((mapped[0] - mapped[1]) ** 2).sum())
    score = KNeighborsClassifier(3).fit(mapped[::2], y[::2]).score(mapped[1::2], y[1::2])
    assert score > 0.88


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_a_constant_feature_gets_no_weight_and_more_features_than_samples_are_no_trouble(estimator, wine, draw):
    X, y = wine[0][::8], wine[1][::8]
    wide = np.hstack([X, np.ones((len(X), 1)), draw.standard_normal((len(X), 40))])
    metric = clone(estimator).fit(wide, y).get_mahalanobis_matrix()
    assert np.isfinite(metric).all() and np.abs(metric[13]).max() < 1e-9 * np.abs(metric).max()


@pytest.mark.parametrize("estimator", ALL, ids=str)
def test_bad_data_are_refused_with_what_came(estimator, wine):
    X, y = wine
    with pytest.raises(DataError, match="at least 2 classes, but y holds only 1"):
        clone(estimator).fit(X, np.zeros(len(X), dtype=int))
    with pytest.raises(ValueError, match="NaN"):
        clone(estimator).fit(np.where(X > 3, np.nan, X), y)


@pytest.mark.parametrize("estimator", ALL[:4], ids=str)
def test_samples_that_allow_no_pair_are_refused(estimator):
    with pytest.raises(DataError, match="each of the 4 classes in y has 1 sample"):
        clone(estimator).fit(np.eye(4), np.arange(4))
    with pytest.raises(DataError, match="all 4 rows of X are equal"):
        clone(estimator).fit(np.ones((4, 2)), [0, 0, 1, 1])


def test_a_class_of_one_sample_is_kept_away_from(wine):
    X, y = wine[0][::4], wine[1][::4].copy()
    y[0] = 7
    assert LANML().fit(X, y).components_.any() and PNCA().fit(X, y).components_.any()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LANML(gamma2=0.0), "gamma2 is a number above 0, but 0.0"),
        (LANML(gamma1=np.nan), "gamma1 is a number"),
        (LANML(regularization=-1), "regularization is a number of at least 0"),
        (LANML(n_similar=0), "n_similar is a whole number of at least 1"),
        (LANML(n_components=99), "n_components = 99 was asked for, but X has 13 features"),
        (LANML(reduction="median"), "unknown reduction 'median'"),
        (LANML(max_iter=2.5), "max_iter is a whole number"),
        (PNCA(alpha=-1), "alpha is a number above 0, but -1"),
        (GMML(t=1.5), "1 - t is a number of at least 0"),
        (RVML(regularization=0), "regularization is a number above 0"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(estimator, message, wine):
    with pytest.raises(ConfigError, match=message):
        estimator.fit(*wine)


@pytest.mark.parametrize("estimator", [LANML(max_iter=1), LANML(gamma1=1.0, max_iter=1), PNCA(max_iter=1)], ids=str)
def test_a_fit_that_has_not_converged_warns_with_what_to_do(estimator, wine):
    with pytest.warns(ConvergenceWarning, match=r"after 1 steps \(max_iter = 1\).*Raise max_iter"):
        estimator.fit(*wine)


def test_components_bound_the_rank(wine):
    for estimator in (LANML(n_components=2), LANML(gamma1=1.0, n_components=2), PNCA(n_components=2)):
        assert estimator.fit(*wine).transform(wine[0]).shape == (178, 2)


def test_pipeline_grid_search_and_pandas_like_names(wine):
    X, y = wine
    pipeline = make_pipeline(StandardScaler(), GMML(), KNeighborsClassifier(3))
    found = GridSearchCV(pipeline, {"gmml__t": [0.3, 0.5]}, cv=3).fit(X, y)
    assert found.best_score_ > 0.9
    assert list(RVML().fit(X, y).get_feature_names_out()) == ["rvml0", "rvml1", "rvml2"]


@pytest.mark.parametrize("estimator", [LANML(), LANML(gamma1=1.0), PNCA(), GMML(), RVML()], ids=repr)
def test_pandas_input_keeps_feature_names(estimator):
    pandas = pytest.importorskip("pandas")
    frame, y = load_iris(return_X_y=True, as_frame=True)
    fitted = clone(estimator).set_output(transform="pandas").fit(frame, y)
    assert list(fitted.feature_names_in_) == list(frame.columns)
    mapped = fitted.transform(frame)
    assert isinstance(mapped, pandas.DataFrame) and mapped.index.equals(frame.index)
    assert list(mapped.columns) == list(fitted.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(frame[frame.columns[::-1]])
