"""A head that starts as principal components or discriminants: what it keeps, and what raises."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.models import Embedder, Identity, TwoStreamEmbedder
from vicinal.models.starts import (
    start_as_discriminants,
    start_as_principal_components,
    start_by_glorot,
)


@pytest.fixture
def features(rng):
    return torch.randn(60, 8, generator=rng) * torch.logspace(1, -2, 8) + 3


def test_it_is_the_projection_of_scikit_learn_up_to_scale_and_sign(features):
    from sklearn.decomposition import PCA

    embedder = Embedder(Identity(8), 3, normalize=False)
    start_as_principal_components(embedder, features, length=1.0)
    ours = embedder(features).detach().double()
    theirs = torch.from_numpy(PCA(3).fit_transform(features.double().numpy()))
    scale = theirs.norm(dim=1).mean()
    assert torch.allclose(ours.abs() * scale, theirs.abs(), atol=1e-4)


@pytest.mark.parametrize("start", [start_as_principal_components, start_as_discriminants])
def test_fewer_pictures_than_dimensions_are_completed_by_directions_at_right_angles(start, rng):
    """A folder of few pictures trains, and whatever else they do not show can still be told
    apart."""
    features = torch.randn(6, 8, generator=rng)
    labels = torch.arange(3).repeat(2)
    embedder = Embedder(Identity(8), 8)
    start(embedder, features, *([labels] if start is start_as_discriminants else []))
    assert torch.linalg.matrix_rank(embedder.head.weight.detach()) == 8
    assert torch.isfinite(embedder(torch.randn(5, 8, generator=rng))).all()


def test_discriminants_even_out_what_differs_within_classes(rng):
    labels = torch.arange(10).repeat_interleave(20)
    centers = torch.randn(10, 6, generator=rng)
    noise = torch.randn(200, 6, generator=rng)
    features = centers[labels] + noise * torch.tensor([4.0, 1, 1, 1, 1, 1])

    def unevenness(start):
        embedder = Embedder(Identity(6), 6, normalize=False)
        start(embedder)
        found = embedder(features).detach().view(10, 20, 6)
        variances = torch.linalg.eigvalsh(
            (found - found.mean(dim=1, keepdim=True)).flatten(0, 1).T.cov()
        )
        return float(variances[-1] / variances[0])

    principal = unevenness(lambda embedder: start_as_principal_components(embedder, features))
    assert (
        unevenness(lambda embedder: start_as_discriminants(embedder, features, labels))
        < principal / 3
    )


def test_glorots_start_fills_its_range_has_no_bias_and_follows_the_seed():
    first, again, other = (Embedder(Identity(30), 20, head_norm=True) for _ in range(3))
    for embedder, seed in ((TwoStreamEmbedder(first, again), 1), (other, 2)):
        start_by_glorot(embedder, seed)
    weight = first.head[1].weight
    limit = (6 / 50) ** 0.5
    assert 0.98 * limit < weight.abs().max() <= limit and not first.head[1].bias.any()
    assert torch.equal(weight, again.head[1].weight) and not torch.equal(
        weight, other.head[1].weight
    )


def test_starts_that_a_network_has_no_head_for_are_rejected(features):
    with pytest.raises(ConfigError, match=r"got Sequential\. Set .* model\.head_norm=false"):
        start_as_principal_components(Embedder(Identity(8), 3, head_norm=True), features)
