"""The search: the paper's grids, every strategy within its budget, and the choice of k."""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from vicinal.errors import ConfigError
from vicinal.linear import GMML, PAPER_GRIDS, RVML, search
from vicinal.linear.search import neighbor_accuracies


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_the_papers_grids_have_the_papers_sizes():
    sizes = {
        name: int(np.prod([len(values) for values in grid.values()]))
        for name, grid in PAPER_GRIDS.items()
    }
    assert sizes == {"lanml-": 8 * 21 * 21, "lanml+": 8 * 21 * 21, "pnca": 19, "gmml": 9}
    assert (
        PAPER_GRIDS["lanml-"]["gamma1"][0] == -(2**-5) and PAPER_GRIDS["lanml+"]["gamma2"][-1] == 32
    )


def test_accuracies_are_those_of_scikit_learns_classifier(iris):
    X, y = iris
    found = neighbor_accuracies(X[::2], y[::2], X[1::2], y[1::2], most=9)
    for k in (1, 3, 9):
        assert found[k - 1] == KNeighborsClassifier(k).fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    assert len(neighbor_accuracies(X[:3], y[[0, 60, 120]], X, y)) == 40


def test_a_random_search_stays_within_its_budget_and_is_repeatable(iris):
    options = {"budget": 4, "folds": 3, "n_jobs": 1}
    grid = {"regularization": [10.0**power for power in range(-4, 3)]}
    first, second = (search(RVML(), *iris, grid, **options) for _ in range(2))
    assert len(first.trials) == 4 and first.parameters == second.parameters
    assert first.accuracy == first.trials[0].best == max(trial.best for trial in first.trials) > 0.9
    assert first.trials[0].accuracies[first.neighbors - 1] == first.accuracy
    assert first.estimator.regularization == first.parameters["regularization"]
    assert first.estimator.transform(iris[0]).shape == (150, 3)


def test_a_race_costs_fewer_fits_and_ends_with_what_ran_on_all_folds(iris, monkeypatch):
    fits = []
    original = RVML.fit
    monkeypatch.setattr(
        RVML, "fit", lambda self, X, y: fits.append(self.regularization) or original(self, X, y)
    )
    grid = {"regularization": [10.0**power for power in np.arange(-5, 2.5, 0.25)]}
    found = search(RVML(), *iris, grid, strategy="racing", refit=False, n_jobs=1)
    assert not hasattr(found.estimator, "components_")
    assert len(fits) == 30 + 2 * 10 + 2 * 4 and len(found.trials) == 4
    assert fits.count(found.parameters["regularization"]) == 5
    whole = search(
        RVML(),
        *iris,
        {"regularization": [found.parameters["regularization"]]},
        n_jobs=1,
    )
    assert whole.accuracy == found.accuracy and whole.neighbors == found.neighbors


def test_a_pipeline_may_choose_columns_of_a_data_frame_by_name():
    pytest.importorskip("pandas")
    frame, y = load_iris(return_X_y=True, as_frame=True)
    frame["color"] = np.where(frame.iloc[:, 0] > 5, "blue", "white")
    chosen = make_column_transformer(
        (StandardScaler(), list(frame.columns[:4])), (OneHotEncoder(), ["color"])
    )
    pipeline = make_pipeline(chosen, RVML())
    found = search(pipeline, frame, y, {"rvml__regularization": [0.1, 1.0]}, folds=3, n_jobs=1)
    assert found.accuracy > 0.8 and found.estimator.transform(frame).shape == (150, 3)


def test_errors(iris):
    with pytest.raises(
        ConfigError, match="strategy: unknown value 'randon'; did you mean 'random'"
    ):
        search(GMML(), *iris, PAPER_GRIDS["gmml"], strategy="randon")
    with pytest.raises(TypeError, match=r"'t' needs to be a list .* but got 0\.5"):
        search(GMML(), *iris, {"t": 0.5})
    with pytest.raises(ValueError, match="Invalid parameter 'tt'"):
        search(GMML(), *iris, {"tt": [0.5]})
