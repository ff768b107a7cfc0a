"""Units of ANML's Table 2: what a line says, whatever becomes of its method."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris

from vicinal import linear
from vicinal.bench import linear_units
from vicinal.bench.linear_plan import FULL, Unit
from vicinal.bench.linear_units import RACED, measure, result
from vicinal.errors import DataError


@pytest.fixture
def iris(monkeypatch):
    monkeypatch.setattr(linear_units, "load", lambda name, folder: load_iris(return_X_y=True))


@pytest.fixture
def contest(iris, monkeypatch):
    """``contest(estimator)``: it is measured, whatever method is asked for."""

    def install(estimator, **grid):
        monkeypatch.setattr(linear_units, "contestant", lambda method, smallest: (estimator, grid))

    return install


class Silent(TransformerMixin, BaseEstimator):
    """A peer that says nothing when its steps run out."""

    def __init__(self, needs=10, max_iter=50):
        self.needs, self.max_iter = needs, max_iter

    def fit(self, X, y):
        if self.needs < 0:
            raise np.linalg.LinAlgError("not positive definite" + "." * 500)
        self.n_iter_ = min(self.needs, self.max_iter - 1)
        return self

    def transform(self, X):
        return X


class Stepless(TransformerMixin, BaseEstimator):
    """Writes down with how many rows and steps it is fitted."""

    max_iter = None

    def fit(self, X, y):
        self.fits = [*getattr(self, "fits", ()), (len(X), self.max_iter)]
        return self

    def transform(self, X):
        return X


class Recording(Stepless):
    """The same, iterative."""

    def __init__(self, max_iter=50):
        self.max_iter = max_iter


def test_a_unit_has_both_readings_and_the_papers_is_never_below(iris):
    for method in ("euclidean", "gmml", "lanml-"):
        unit = Unit("iris", 3, method, budget=2, raced=2)
        found = result(unit, Path(), versions="commit 0")
        assert 0.85 < found["accuracy"] <= found["oracle"] <= 1 and 1 <= found["neighbours"] <= 40
        assert (found["trained_on"], found["tested_on"], found["budget"]) == (105, 45, 2)
        assert (found["set"], found["split"], found["method"], found["versions"]) == ("iris", 3, method, "commit 0")
        assert found["accuracy"] == measure(unit, Path())["accuracy"]
        json.dumps(found, allow_nan=False)


@pytest.mark.slow
def test_several_cores_find_the_same_and_say_so(iris):
    unit = Unit("iris", 1, "gmml", budget=4, raced=4)
    alone, together = (result(unit, Path(), cores=cores) for cores in (1, 2))
    assert together.pop("cores") == 2 and "cores" not in alone
    assert {key for key in alone if alone[key] != together[key]} <= {"seconds", "cpu"}


@pytest.mark.parametrize(("needs", "converged"), [(10, True), (1000, False)])
def test_a_fit_that_ran_out_of_steps_in_silence_has_not_converged(contest, needs, converged):
    contest(Silent(), needs=[needs])
    found = result(Unit("iris", 0, "lmnn", 1, 1), Path(), versions="commit 0")
    assert found["converged"] is converged and found["versions"] == "commit 0, metric-learn 0.7.0"


def test_a_method_that_cannot_serve_a_split_says_why(contest):
    contest(Silent(), needs=[-1])
    found = result(Unit("iris", 0, "itml", 1, 1), Path())
    assert found["error"].startswith("not positive definite") and len(found["error"]) == 200 and "accuracy" not in found


def test_a_file_that_cannot_be_read_is_no_result(tmp_path):
    (tmp_path / "iris.csv.gz").write_bytes(gzip.compress(b"length,class\nlong,setosa\n"))
    with pytest.raises(DataError, match=r"'long' as 'length' in line 2"):
        result(Unit("iris", 0, "lda", 1, 1), tmp_path)


@pytest.mark.parametrize(("rows", "budget"), [(RACED + 1, 12), (RACED, 30)])
def test_larger_sets_race_with_fewer_configurations(contest, monkeypatch, rows, budget):
    draw = np.random.default_rng(0)
    parts = draw.standard_normal((rows, 2)), np.arange(rows) % 2, draw.standard_normal((40, 2)), np.arange(40) % 2
    monkeypatch.setattr(linear_units, "split", lambda X, y, number: parts)
    contest(Silent(), needs=[1])
    assert measure(next(FULL.units(["lda"])), Path())["budget"] == budget


@pytest.mark.parametrize(
    ("rows", "samples", "fitted"), [(4500, 1500, 3000), (3001, 1500, 3000), (3000, None, 3000), (90, None, 90)]
)
@pytest.mark.parametrize(("own", "last"), [(50, 300), (1000, 1000), (None, None)])
def test_the_protocol_is_kept(contest, monkeypatch, rows, samples, fitted, own, last):
    """Rows and steps of the search and of the last fit; k by the search, though another serves the test part best."""
    estimator, asked = Recording(own) if own else Stepless(), {}
    curve = np.array([0.5, 0.7, 0.6, 0.9])

    def search(given, X, y, grid, **ways):
        asked.update(ways, rows=len(X), steps=given.get_params().get("max_iter"))
        return SimpleNamespace(estimator=given, neighbours=3, accuracy=0.8, parameters={})

    def accuracies(train, train_y, test, test_y):
        assert (len(train), len(train_y), len(test), len(test_y)) == (rows, rows, 40, 40)  # all are looked among
        return curve

    parts = np.zeros((rows, 2)), np.arange(rows) % 2, np.ones((40, 2)), np.arange(40) % 2
    monkeypatch.setattr(linear_units, "split", lambda X, y, number: parts)
    monkeypatch.setattr(linear, "search", search)
    monkeypatch.setattr(linear, "neighbour_accuracies", accuracies)
    contest(estimator)
    found = measure(Unit("iris", 7, "lmnn", budget=30, raced=12), Path())
    assert (asked["rows"], asked["samples"], asked["steps"]) == (rows, samples, 100 if own else None)
    assert (asked["folds"], asked["seed"], asked["refit"]) == (5, 7, False)
    assert (asked["strategy"], asked["budget"]) == (("racing", 12) if rows > 400 else ("random", 30))
    assert estimator.fits == [(fitted, last)] and (found["trained_on"], found["fitted_on"]) == (rows, fitted)
    assert (found["accuracy"], found["oracle"], found["neighbours"]) == (0.6, 0.9, 3)
