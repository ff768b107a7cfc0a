"""The remade Table 2: a results file that survives being cut off, and peers under scikit-learn's names of today."""

import importlib
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tabular(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("tabular")


def test_a_line_that_was_cut_off_neither_counts_nor_swallows_the_next(tabular, tmp_path):
    path = tmp_path / "new" / "results.jsonl"
    tabular.end_last_line(path)
    assert tabular.lines_of(path) == []
    path.write_text('{"set": "iris"}\n{"set": "wine", "parameters": {"t": 0.5}')  # ends with a brace, but is cut off
    tabular.end_last_line(path)
    with path.open("a") as file:
        file.write('{"set": "glass"}\n')
    assert [line["set"] for line in tabular.lines_of(path)] == ["iris", "glass"]
    text = path.read_text()
    tabular.end_last_line(path)
    assert path.read_text() == text


def test_scaling_and_directions_come_from_the_training_part_and_a_split_from_its_number(tabular):
    draw = np.random.default_rng(0)
    X, y = draw.standard_normal((400, 160)) * 5 + 3, draw.integers(0, 3, 400)
    train, train_y, test, test_y = tabular.split(X, y, 7)
    assert train.shape == (280, 150) and test.shape == (120, 150) and len(train_y) + len(test_y) == 400
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-10)
    assert np.abs(test.mean(axis=0)).max() > 0.05
    np.testing.assert_array_equal(tabular.split(X, y, 7)[0], train)
    assert not np.array_equal(tabular.split(X, y, 8)[3], test_y)
    narrow = tabular.split(X[:, :4], y, 7)[0]
    np.testing.assert_allclose(narrow.std(axis=0), 1)


def test_a_unit_has_both_readings_and_the_papers_is_never_below(tabular, monkeypatch):
    monkeypatch.setattr(tabular, "load", lambda name, folder: load_iris(return_X_y=True))
    options = Namespace(data=Path(), budget=2, race_budget=2, search_steps=20, fit_rows=3000, versions="0")
    for method in ("euclidean", "gmml", "lanml-"):
        found = tabular.measure("iris", 3, method, options)
        assert 0.85 < found["accuracy"] <= found["oracle"] <= 1 and 1 <= found["neighbours"] <= 40
        assert (found["trained_on"], found["tested_on"]) == (105, 45)
        assert found["accuracy"] == tabular.measure("iris", 3, method, options)["accuracy"]


def test_the_table_holds_both_readings_and_says_who_is_among_the_best(tabular):
    lines = [
        {"set": "iris", "split": split, "method": method, "accuracy": 0.9 + 0.09 * (method == "pnca") + split / 1e4,
         "oracle": 0.995, "trained_on": 105, "tested_on": 45}
        for split in range(10) for method in tabular.OWN
    ]  # fmt: skip
    cross_validated, paper = tabular.both_readings(lines).split("By the paper's reading")
    assert "| **99.0 ± 0.0** |" in cross_validated and "| 90.0 ± 0.0 |" in cross_validated
    assert "pnca against nca, 1 sets, significantly: above 1" in cross_validated
    assert "1 of 1 sets" in cross_validated and paper.count("**99.5 ± 0.0**") == len(tabular.OWN)


def test_a_peer_with_few_easy_splits_is_not_the_best_of_all(tabular):
    def line(split, method, accuracy):
        found = {"set": "iris", "split": split, "method": method, "accuracy": accuracy + 0.09 * (split < 2)}
        return found | {"oracle": 0.995, "trained_on": 105, "tested_on": 45}

    lines = [line(split, m, 0.89 + 0.01 * (m == "pnca")) for split in range(10) for m in tabular.OWN]
    text = tabular.table(lines + [line(split, "lmnn", 0.89) for split in range(2)], "accuracy")
    assert text.count("**") == 2 and "| **91.8 ± 3.8** |" in text and "| 98.0 ± 0.0 (2) |" in text


class Silent(TransformerMixin, BaseEstimator):
    """A peer that says nothing when its steps run out."""

    def __init__(self, needs=10, max_iter=50):
        self.needs, self.max_iter = needs, max_iter

    def fit(self, X, y):
        self.n_iter_ = min(self.needs, self.max_iter - 1)
        return self

    def transform(self, X):
        return X


@pytest.mark.parametrize(("needs", "converged"), [(10, True), (1000, False)])
def test_a_fit_that_ran_out_of_steps_in_silence_has_not_converged(tabular, monkeypatch, needs, converged):
    monkeypatch.setattr(tabular, "load", lambda name, folder: load_iris(return_X_y=True))
    monkeypatch.setattr(tabular, "contestant", lambda method, smallest: (Silent(), {"needs": [needs]}))
    options = Namespace(data=Path(), budget=1, race_budget=1, search_steps=20, fit_rows=3000, versions="0")
    assert tabular.measure("iris", 0, "lmnn", options)["converged"] is converged


def before_1_6(array, *, force_all_finite=True):
    return array, force_all_finite


def from_1_6(array, *, force_all_finite="deprecated", ensure_all_finite=None):
    assert force_all_finite == "deprecated", "warns"
    return array, ensure_all_finite


def from_1_8(array, *, ensure_all_finite=True):
    return array, ensure_all_finite


@pytest.mark.parametrize("check", [before_1_6, from_1_6, from_1_8])
def test_peers_call_scikit_learns_checks_by_the_name_of_any_version(tabular, check, monkeypatch):
    """metric-learn 0.7.0 says ``force_all_finite``; scikit-learn renamed it in 1.6 and forgot the old name in 1.8."""
    package, used = ModuleType("metric_learn"), ModuleType("metric_learn._util")
    package._util, used.check_array, used.check_X_y = used, check, check
    monkeypatch.setitem(sys.modules, "metric_learn", package)
    monkeypatch.setitem(sys.modules, "metric_learn._util", used)
    for _ in range(2):  # a worker that serves two peers asks twice
        tabular.accept_old_names()
        assert used.check_array("rows", force_all_finite=False) == ("rows", False)
        assert used.check_X_y("rows", force_all_finite=True) == ("rows", True)


def test_scikit_learn_here_has_a_name_that_peers_can_be_translated_to(tabular, monkeypatch):
    from sklearn.utils import check_array, check_X_y

    package, used = ModuleType("metric_learn"), ModuleType("metric_learn._util")
    package._util, used.check_array, used.check_X_y = used, check_array, check_X_y
    monkeypatch.setitem(sys.modules, "metric_learn", package)
    monkeypatch.setitem(sys.modules, "metric_learn._util", used)
    tabular.accept_old_names()
    used.check_array([[float("nan")]], force_all_finite=False)
    with pytest.raises(ValueError, match="NaN"):
        used.check_X_y([[float("nan")]], [1], force_all_finite=True)
