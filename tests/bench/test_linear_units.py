"""Units of ANML's Table 2: what a line says, whatever becomes of its method."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris

from vicinal.bench import linear_units
from vicinal.bench.linear_plan import FULL, Unit
from vicinal.bench.linear_units import RACED, measure, result


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
    with pytest.raises(ValueError, match="'long'"):
        result(Unit("iris", 0, "lda", 1, 1), tmp_path)


@pytest.mark.parametrize(("rows", "budget"), [(RACED + 1, 12), (RACED, 30)])
def test_larger_sets_race_with_fewer_configurations(contest, monkeypatch, rows, budget):
    draw = np.random.default_rng(0)
    parts = draw.standard_normal((rows, 2)), np.arange(rows) % 2, draw.standard_normal((40, 2)), np.arange(40) % 2
    monkeypatch.setattr(linear_units, "split", lambda X, y, number: parts)
    contest(Silent(), needs=[1])
    assert measure(next(FULL.units(["lda"])), Path())["budget"] == budget
