"""The shape of HardExemplarLoss's weights, what passes gradient, pairs of views, and its
orientation term."""

import pytest
import torch
from torch.autograd import grad, gradcheck
from torch.testing import assert_close

from vicinal.losses import HardExemplarLoss

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
MARGIN = 3.75  # the authors': 25 times 0.15


@pytest.fixture
def views(rng):
    """Queries, their matches nearby, and an error each."""
    queries = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    gallery = queries + 0.6 * torch.randn(6, 4, generator=rng, dtype=torch.float64)
    return queries, gallery, 4 * torch.rand(6, generator=rng, dtype=torch.float64)


def weigh(gaps, compared=10.0, **options):
    gaps = torch.tensor(gaps, dtype=torch.float64)
    return HardExemplarLoss(**options).weigh(gaps, torch.full_like(gaps, compared))


# -- the weights ----------------------------------------------------------------------------------


def test_only_undetached_weights_let_the_orientation_move_the_embeddings(views):
    queries, gallery, errors = (view.clone().requires_grad_() for view in views)

    def orientation(loss):
        return loss.with_orientation(queries, gallery, torch.arange(6), errors).orientation

    for detach in (True, False):
        value = orientation(HardExemplarLoss(detach_weights=detach))
        moved = grad(value, queries, allow_unused=True, materialize_grads=True)[0]
        assert bool(moved.any()) is not detach

    def both(queries, gallery, errors):
        loss = HardExemplarLoss(detach_weights=False)
        return loss.with_orientation(queries, gallery, torch.arange(6), errors)[:2]

    assert gradcheck(both, (queries, gallery, errors))


# -- pairs of views -------------------------------------------------------------------------------


def test_the_authors_mean_over_the_whole_matrix_is_b_minus_1_over_b_of_ours(views):
    """Their code, written out: B queries, each with its own match; means over B x B, the diagonal
    0."""
    queries, gallery, errors = views
    loss = HardExemplarLoss()
    found = loss.with_orientation(queries, gallery, torch.arange(6), errors)
    compared = loss.distance(queries, gallery)
    gaps = compared - compared.diagonal()[:, None]
    weights = weigh(gaps.tolist(), compared=6.0).fill_diagonal_(0)
    match = (weights * torch.log1p(torch.exp(-gaps))).mean()
    assert_close(found.match * 5 / 6, match)
    assert_close(found.orientation * 5 / 6, (weights * errors[:, None]).mean())


def test_pairs_of_one_class_are_no_negatives(views):
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    rest = torch.tensor([0, 2, 3, 4, 5])  # without the other pair of class 0; B is 5 with it, too
    loss = HardExemplarLoss(reduction="none")
    queries, gallery, errors = views
    found = loss.with_orientation(queries, gallery, labels, errors).match
    few = [view[rest] for view in views]
    expected = loss.with_orientation(few[0], few[1], labels[rest], few[2]).match
    assert_close(found[0], expected[0])
