"""Losses that rank against exact measures, and in how much memory."""

import resource

import pytest
import torch
from tests.apart import alone
from torch.testing import assert_close

from vicinal.losses import LOSSES, RecallAtKLoss, SmoothAPLoss

LABELS = torch.arange(40) // 5


@pytest.fixture
def embeddings(rng):
    return torch.randn(40, 4, generator=rng, dtype=torch.float64)


def test_sharp_steps_give_exact_average_precision_and_recall(embeddings):
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    ranked = (unit @ unit.T).fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)[:, :-1]
    hits = (LABELS[ranked] == LABELS[:, None]).double()
    precision = hits.cumsum(dim=1) / torch.arange(1, 40)
    exact = (precision * hits).sum(dim=1) / hits.sum(dim=1)
    assert_close(SmoothAPLoss(1e-7)(embeddings, LABELS), 1 - exact.mean())
    sharp = RecallAtKLoss((1, 2, 8), temperature=1e-7, rank_temperature=1e-3)
    # Ranks are whole numbers, so the cut is put on one: a positive of rank k is half inside.
    inside = [
        (hits[:, :k].sum(dim=1) - hits[:, k - 1] / 2).clamp(max=k) / min(k, 4) for k in (1, 2, 8)
    ]
    assert_close(sharp(embeddings, LABELS), 1 - torch.stack(inside).mean())


def peak(name):
    """MiB that a loss takes at its most, forward and backward, beyond what the process held."""
    rows = torch.randn(8192, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    LOSSES[name]()(rows, torch.arange(8192) // 4).backward()
    assert rows.grad.isfinite().all()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


@pytest.mark.slow(20)
@pytest.mark.parametrize("name", ["fast_ap", "smooth_ap", "roadmap", "recall_at_k", "pnp"])
def test_a_batch_of_8192_fits_where_its_cube_would_not(name):
    """8192 x 3 x 8188 comparisons would be 0.8 GiB for each step of a formula; the similarities are
    256 MiB."""
    assert alone(peak, name) < 3072
