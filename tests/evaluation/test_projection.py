"""The map: the same for a seed, near rows near, and defined for the few and the equal."""

import pytest
import torch

from vicinal.evaluation import artifacts
from vicinal.evaluation.artifacts import tsne


def test_clear_clusters_stay_apart_and_a_seed_repeats_itself(rng, monkeypatch):
    monkeypatch.setattr(artifacts, "STEPS", 1000)
    labels = torch.arange(3).repeat_interleave(15)
    rows = 20 * torch.eye(3, 8)[labels] + torch.randn(45, 8, generator=rng)
    position = tsne(rows, seed=0)
    assert position.shape == (45, 2)
    distances = torch.cdist(position, position) + torch.eye(45) * 1e9
    assert torch.equal(labels[distances.argmin(dim=1)], labels)
    assert torch.equal(position, tsne(rows, seed=0))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("dim", [1, 4])
def test_few_rows_have_finite_positions(rng, n, dim):
    position = tsne(torch.randn(n, dim, generator=rng), seed=0)
    assert position.shape == (n, 2)
    assert position.isfinite().all()
