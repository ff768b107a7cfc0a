"""The neighbors that smart mining seeks, exact and approximate."""

import pytest
import torch

from vicinal.miners import smart
from vicinal.miners.smart import approximate_neighbors, exact_neighbors


def test_exact_neighbors_are_those_of_the_full_matrix_however_they_are_cut(rng, monkeypatch):
    rows = torch.randn(50, 5, generator=rng, dtype=torch.float64)
    distances = torch.cdist(rows, rows).fill_diagonal_(torch.inf)
    expected = distances.argsort(dim=1)[:, :7]
    assert torch.equal(exact_neighbors(rows, 7), expected)
    monkeypatch.setattr(smart, "CHUNK", 170)
    assert torch.equal(exact_neighbors(rows, 7), expected)


@pytest.mark.parametrize("search", [exact_neighbors, approximate_neighbors])
def test_a_row_is_not_its_own_neighbour_but_its_duplicate_is(search):
    if search is approximate_neighbors:
        pytest.importorskip("faiss")
    rows = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    found = search(rows, 3).tolist()
    assert found[:2] == [[1, 2, 3], [0, 2, 3]] and [sorted(found[2][:2]), found[2][2]] == [
        [0, 1],
        3,
    ]
    assert found[3][0] == 2 and search(rows, 5)[0].tolist() == [1, 2, 3, -1, -1]


def test_no_rows_have_no_neighbors():
    assert exact_neighbors(torch.zeros(0, 3), 2).shape == (0, 2)


def test_approximate_neighbors_find_nearly_all_and_the_same_in_every_run(rng):
    pytest.importorskip("faiss")
    rows = torch.randn(3000, 8, generator=rng)
    found, exact = approximate_neighbors(rows, 10), exact_neighbors(rows, 10)
    assert torch.equal(found, approximate_neighbors(rows, 10))
    shared = (found[:, :, None] == exact[:, None]).any(dim=2).float().mean()
    assert shared > 0.9 and (found != torch.arange(3000)[:, None]).all()
