"""The search: the paper's grids, every strategy within its budget, and the choice of k."""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from vicinal.errors import ConfigError, DataError
from vicinal.linear import GMML, LANML, PAPER_GRIDS, RVML, search
from vicinal.linear.search import _subsample, neighbor_accuracies


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


def test_the_papers_values_are_plain_numbers_that_read_well():
    assert {
        type(value) for grid in PAPER_GRIDS.values() for values in grid.values() for value in values
    } == {float}


def test_a_random_search_stays_within_its_budget_and_is_repeatable(iris):
    options = {"budget": 4, "folds": 3, "n_jobs": 1}
    grid = {"regularization": [10.0**power for power in range(-4, 3)]}
    first, second = (search(RVML(), *iris, grid, **options) for _ in range(2))
    assert len(first.trials) == 4 and first.parameters == second.parameters
    assert first.accuracy == first.trials[0].best == max(trial.best for trial in first.trials) > 0.9
    assert first.trials[0].accuracies[first.neighbors - 1] == first.accuracy
    assert first.estimator.regularization == first.parameters["regularization"]
    assert first.estimator.transform(iris[0]).shape == (150, 3)


def test_a_whole_grid(iris):
    whole = search(GMML(), *iris, PAPER_GRIDS["gmml"], strategy="grid", n_jobs=1)
    assert len(whole.trials) == 9


def test_a_race_costs_fewer_fits_and_ends_with_what_ran_on_all_folds(iris, monkeypatch):
    fits = []
    original = RVML.fit
    monkeypatch.setattr(
        RVML, "fit", lambda self, X, y: fits.append(self.regularization) or original(self, X, y)
    )
    grid = {"regularization": [10.0**power for power in np.arange(-5, 2.5, 0.25)]}
    found = search(RVML(), *iris, grid, strategy="racing", refit=False, n_jobs=1)
    assert len(fits) == 30 + 2 * 10 + 2 * 4 and len(found.trials) == 4
    assert fits.count(found.parameters["regularization"]) == 5
    whole = search(
        RVML(),
        *iris,
        {"regularization": [found.parameters["regularization"]]},
        n_jobs=1,
    )
    assert whole.accuracy == found.accuracy and whole.neighbors == found.neighbors


def test_without_refit_the_winner_is_left_unfitted(iris):
    found = search(RVML(), *iris, {"regularization": [0.1]}, refit=False, n_jobs=1)
    assert found.estimator.regularization == 0.1 and not hasattr(found.estimator, "components_")


def test_processes_find_the_same(iris):
    grid = {"gamma2": [1.0, 8.0]}
    one, two = (search(LANML(), *iris, grid, folds=2, n_jobs=jobs, samples=60) for jobs in (1, 2))
    assert [trial.parameters for trial in one.trials] == [trial.parameters for trial in two.trials]
    assert one.accuracy == two.accuracy


def test_a_subsample_keeps_the_classes_in_proportion():
    labels = np.repeat([0, 1, 2], [600, 300, 3])
    counts = np.bincount(labels[_subsample(labels, 90, least=2, seed=0)])
    assert counts.tolist() == [60, 30, 2]


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
    with pytest.raises(ConfigError, match="at least 1, got budget = 0"):
        search(GMML(), *iris, PAPER_GRIDS["gmml"], budget=0)
    with pytest.raises(ConfigError, match="at least 1, got budget = 30 and samples = 0"):
        search(GMML(), *iris, PAPER_GRIDS["gmml"], samples=0)
    with pytest.raises(
        DataError, match=r"5 folds need a class .* largest of the 3 classes in y has 4"
    ):
        search(GMML(), iris[0][::15], iris[1][::15], PAPER_GRIDS["gmml"])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[150, 149\]"):
        search(GMML(), iris[0], iris[1][1:], {"t": [0.5]}, refit=False, n_jobs=1)
    with pytest.raises(ConfigError, match="leave it out, the search finds its k"):
        search(make_pipeline(GMML(), KNeighborsClassifier()), *iris, {"gmml__t": [0.5]})
    with pytest.raises(TypeError, match=r"'t' needs to be a list .* but got 0\.5"):
        search(GMML(), *iris, {"t": 0.5})
    with pytest.raises(ValueError, match="Invalid parameter 'tt'"):
        search(GMML(), *iris, {"tt": [0.5]})
