"""LMNN and ITML under scikit-learn's names of today, without metric-learn: a module of its name stands in for it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from sklearn.base import clone

from vicinal.bench import linear_peers
from vicinal.bench.linear_peers import ITML, LMNN, accept_old_names, lacking


@pytest.fixture
def metric_learn(monkeypatch):
    """``metric_learn(check)``: the package, with that check in it; ``metric_learn(None)``: without the package."""

    def install(check, version="0.7.0"):
        package, used = ModuleType("metric_learn"), ModuleType("metric_learn._util")
        package.__version__, used.check_array, used.check_X_y = version, check, check
        monkeypatch.setitem(sys.modules, "metric_learn", package if check else None)
        monkeypatch.setitem(sys.modules, "metric_learn._util", used)
        return package, used

    return install


def before_1_6(array, *, force_all_finite=True):
    return array, force_all_finite


def from_1_6(array, *, force_all_finite="deprecated", ensure_all_finite=None):
    assert force_all_finite == "deprecated", "warns"
    return array, ensure_all_finite


def from_1_8(array, *, ensure_all_finite=True):
    return array, ensure_all_finite


@pytest.mark.parametrize("check", [before_1_6, from_1_6, from_1_8])
def test_peers_call_scikit_learns_checks_by_the_name_of_any_version(check, metric_learn):
    """metric-learn 0.7.0 says ``force_all_finite``; scikit-learn renamed it in 1.6 and forgot the old name in 1.8."""
    _, used = metric_learn(check)
    for _ in range(2):  # a worker that serves two peers asks twice
        accept_old_names()
        assert used.check_array("rows", force_all_finite=False) == ("rows", False)
        assert used.check_X_y("rows", force_all_finite=True) == ("rows", True)


def test_scikit_learn_here_has_a_name_that_peers_can_be_translated_to(metric_learn):
    from sklearn.utils import check_array, check_X_y

    _, used = metric_learn(check_array)
    used.check_X_y = check_X_y
    accept_old_names()
    used.check_array([[float("nan")]], force_all_finite=False)
    with pytest.raises(ValueError, match="NaN"):
        used.check_X_y([[float("nan")]], [1], force_all_finite=True)


@pytest.mark.parametrize(
    ("peer", "name", "settings"),
    [
        (LMNN, "LMNN", {"regularization": 0.2, "n_neighbors": 4, "max_iter": 7}),
        (ITML, "ITML_Supervised", {"gamma": 0.25, "max_iter": 7}),
    ],
)
def test_a_peer_passes_on_its_settings_and_counts_its_steps(peer, name, settings, metric_learn):
    def fitted(random_state, **given):
        assert random_state == 0 and given == settings
        done = SimpleNamespace(n_iter_=5, transform=lambda rows: [2 * row for row in rows])
        return SimpleNamespace(fit=lambda X, y: done)

    package, _ = metric_learn(from_1_8)
    setattr(package, name, fitted)
    found = clone(peer()).set_params(**settings).fit([[1.0]], [0])
    assert found.n_iter_ == 5 and found.transform([3.0]) == [6.0]


def test_what_is_missing_is_said_with_what_to_install(metric_learn):
    metric_learn(from_1_8)
    assert lacking() == ""
    metric_learn(from_1_8, version="0.6.2")
    assert "0.6.2 is installed" in lacking()
    metric_learn(None)
    assert "not installed (pip install --no-deps metric-learn==0.7.0)" in lacking()
    assert linear_peers.PEER_VERSION == "0.7.0"
