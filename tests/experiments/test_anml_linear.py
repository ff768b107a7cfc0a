"""ANML's Table 2: one unit measured, the table of what is there, and sets that are broken or
missing."""

import csv
import gzip
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_iris
from sklearn.neighbors import KNeighborsClassifier

from vicinal.errors import DataError
from vicinal.linear import RVML

FOLDER = Path(__file__).parents[2] / "experiments"
MODULES = (
    "methods",
    "peers",
    "printed",
    "published",
    "sets",
    "table",
    "tuning",
    "units",
    "__main__",
)


@pytest.fixture
def linear(monkeypatch):
    """``linear("units")``: a module of the experiment."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.syspath_prepend(FOLDER / "anml_linear")
    yield __import__
    for name in MODULES[:-1]:
        sys.modules.pop(name, None)


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    with gzip.open(tmp_path / "iris.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "class"])
        writer.writerows(
            [*map(float, rng.normal(size=2) + 3 * (row % 3)), row % 3] for row in range(60)
        )
    return tmp_path


def test_a_unit_is_measured_and_shown(linear, data):
    units = linear("units")
    table = linear("table")
    (line,) = units.perform(
        data, data=str(data), set="iris", split=0, method="lda", budget=2, raced=2
    )
    assert (
        line["accuracy"] <= line["oracle"] <= 1
        and line["trained_on"] == 42
        and line["tested_on"] == 18
    )
    text = table.markdown([line], units.FULL)
    assert "| iris (incomplete) | 1 of 30 |" in text and "lda" in text


def test_accuracies_are_those_of_scikit_learns_classifier(linear):
    X, y = load_iris(return_X_y=True)
    accuracies = linear("tuning").neighbor_accuracies
    found = accuracies(X[::2], y[::2], X[1::2], y[1::2], most=9)
    for k in (1, 3, 9):
        assert found[k - 1] == KNeighborsClassifier(k).fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    assert len(accuracies(X[:3], y[[0, 60, 120]], X, y)) == 40


def test_a_race_costs_fewer_fits_and_ends_with_what_ran_on_all_folds(linear, monkeypatch):
    fits = []
    original = RVML.fit
    monkeypatch.setattr(
        RVML, "fit", lambda self, X, y: fits.append(self.regularization) or original(self, X, y)
    )
    search = linear("tuning").search
    iris = load_iris(return_X_y=True)
    options = {"budget": 30, "folds": 5, "seed": 0}
    grid = {"regularization": [10.0**power for power in np.arange(-5, 2.5, 0.25)]}
    found = search(RVML(), *iris, grid, race=True, **options)
    assert len(fits) == 30 + 2 * 10 + 2 * 4 and len(found) == 4
    assert found[0].best == max(trial.best for trial in found)
    best = found[0].parameters["regularization"]
    assert fits.count(best) == 5
    (whole,) = search(RVML(), *iris, {"regularization": [best]}, race=False, **options)
    assert whole.best == found[0].best and whole.neighbors == found[0].neighbors
    few = search(RVML(), *iris, grid, race=False, **{**options, "budget": 2, "folds": 3})
    assert len(few) == 2


def test_what_differs_significantly_is_not_among_the_best(linear):
    units = linear("units")
    table = linear("table")
    methods = linear("methods")
    plan = replace(units.FULL, sets=("iris",))
    facts = {"set": "iris", "trained_on": 70, "tested_on": 30}
    lines = [
        {**facts, "split": split, "method": method, "accuracy": value, "oracle": value}
        for split in range(5)
        for place, method in enumerate(methods.OWN)
        for value in [0.99 - 0.1 * (place > 1) - 0.001 * ((split + place) % 3)]
    ]
    (row,) = table.view(lines, plan, "accuracy").rows
    assert [cell.best for cell in row.cells] == [place < 2 for place in range(len(methods.OWN))]
    assert table.view(lines, plan, "oracle").rows[0].printed[2] == "96.11"


def test_the_corrected_test_is_nadeau_and_bengios_formula(linear):
    corrected = linear("table").corrected_resampled_t
    values = [0.62, 0.64, 0.61, 0.66, 0.63]
    others = [0.60, 0.63, 0.61, 0.62, 0.60]
    differences = np.subtract(values, others)
    plain = stats.ttest_rel(values, others).pvalue
    found = corrected(values, others, trained_on=90, tested_on=10)
    statistic = differences.mean() / np.sqrt((1 / 5 + 10 / 90) * differences.var(ddof=1))
    assert found.p == pytest.approx(2 * stats.t.sf(statistic, 4)) and found.p > plain
    assert corrected(values, others, trained_on=10**9, tested_on=1).p == pytest.approx(plain)


def test_broken_and_missing_sets_are_reported_with_their_line(linear, data):
    sets = linear("sets")
    with gzip.open(data / "wine.csv.gz", "wt") as file:
        file.write("a,class\n1,x\nnan,x\n")
    with pytest.raises(DataError, match="line 3"):
        sets.read(data / "wine.csv.gz")
    (data / "glass.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        sets.read(data / "glass.csv.gz")
