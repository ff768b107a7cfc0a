"""In how much memory losses rank."""

import resource

import pytest
import torch
from tests.apart import alone

from vicinal.losses import LOSSES


def peak(name):
    """MiB that a loss takes at its most, forward and backward, beyond what the process held."""
    rows = torch.randn(4096, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    LOSSES[name]()(rows, torch.arange(4096) // 4).backward()
    assert rows.grad.isfinite().all()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


@pytest.mark.slow(8)
@pytest.mark.parametrize("name", ["fast_ap", "smooth_ap", "roadmap", "recall_at_k", "pnp"])
def test_a_batch_of_4096_fits_where_its_cube_would_not(name):
    """4096 x 3 x 4092 comparisons would be 192 MiB for each step of a formula; the similarities are
    64 MiB, and all that is held 440 to 700."""
    assert alone(peak, name) < 900
