"""The methods of ANML's Table 2 and their grids."""

import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from vicinal.bench.linear_contestants import METHODS, NEW, OWN, PEERS, contestant


@pytest.mark.parametrize("method", METHODS)
def test_every_value_of_a_grid_is_a_setting_of_its_estimator(method):
    estimator, grid = contestant(method, smallest_class=40)
    configurations = list(ParameterGrid(dict(grid)))
    clone(estimator).set_params(**configurations[0])
    assert len({str(one) for one in configurations}) == len(configurations)


def test_each_method_is_listed_once_ours_last():
    assert sorted(METHODS) == sorted({*OWN, *PEERS}) and METHODS[-3:] == NEW


@pytest.mark.parametrize(("smallest", "neighbours"), [(2, [1]), (6, [3]), (8, [4, 5]), (100, [4, 5, 6, 7, 8, 9, 10])])
def test_lmnn_asks_for_no_more_neighbours_than_a_fold_leaves_in_a_class(smallest, neighbours):
    assert contestant("lmnn", smallest)[1]["n_neighbors"] == neighbours
