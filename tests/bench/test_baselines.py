"""PCA against scikit-learn's; whitening makes variances equal; what is asked beyond the data is left out."""

import pytest
import torch
from sklearn.decomposition import PCA as Peer

from vicinal.bench.baselines import fit_pca
from vicinal.errors import ConfigError


@pytest.fixture
def vectors(rng):
    return torch.randn(60, 8, generator=rng) @ torch.diag(torch.arange(1.0, 9.0)) + 3


@pytest.mark.parametrize("whiten", [False, True])
def test_projects_as_scikit_learn_does(vectors, whiten):
    ours = fit_pca(vectors, 5, whiten=whiten)(vectors)
    peer = torch.from_numpy(Peer(5, whiten=whiten, svd_solver="full").fit_transform(vectors.double().numpy())).float()
    torch.testing.assert_close(ours.abs(), peer.abs(), atol=1e-4, rtol=1e-4)  # a direction's sign is free


def test_whitened_directions_vary_alike_and_flat_ones_stay_small(vectors, rng):
    flat = torch.cat([vectors, 1e-5 * torch.randn(60, 1, generator=rng)], dim=1)
    spreads = fit_pca(flat, 9, whiten=True)(flat).std(dim=0)
    torch.testing.assert_close(spreads[:8], torch.ones(8), atol=1e-4, rtol=1e-4)
    assert spreads[8] < 1e-2


def test_no_more_directions_than_vectors_span(vectors):
    assert fit_pca(vectors[:4], 8, whiten=False).directions.shape == (8, 3)
    with pytest.raises(ConfigError, match="at least 1 dimension"):
        fit_pca(vectors, 0, whiten=False)
