"""A head that starts as principal components: what it keeps, and what it refuses."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.models import Embedder, Identity
from vicinal.models.principal import start_as_principal_components


@pytest.fixture
def features(rng):
    return torch.randn(60, 8, generator=rng) * torch.logspace(1, -2, 8) + 3


def test_it_is_the_projection_of_scikit_learn_up_to_scale_and_sign(features):
    from sklearn.decomposition import PCA

    embedder = Embedder(Identity(8), 3, normalize=False)
    start_as_principal_components(embedder, features, length=1.0)
    ours, theirs = (
        embedder(features).detach().double(),
        torch.from_numpy(PCA(3).fit_transform(features.double().numpy())),
    )
    scale = theirs.norm(dim=1).mean()
    assert torch.allclose(ours.abs() * scale, theirs.abs(), atol=1e-4)


@pytest.mark.parametrize("length", [1.0, 6.0])
def test_embeddings_have_the_length_that_was_asked_for(features, length):
    embedder = Embedder(Identity(8), 4, normalize=False)
    start_as_principal_components(embedder, features, length=length)
    assert embedder(features).norm(dim=1).mean().item() == pytest.approx(length, rel=1e-5)


def test_in_all_dimensions_no_distance_changes(features):
    embedder = Embedder(Identity(8), 8, normalize=False)
    start_as_principal_components(embedder, features)
    exact = "donot_use_mm_for_euclid_dist"
    before, after = (torch.cdist(rows, rows, compute_mode=exact) for rows in (features, embedder(features)))
    ratio = before[0, 1] / after[0, 1]
    assert torch.allclose(before, ratio * after, atol=1e-3)


def test_signs_do_not_depend_on_the_solver(features):
    heads = []
    for order in (torch.arange(60), torch.arange(59, -1, -1)):
        embedder = Embedder(Identity(8), 3)
        start_as_principal_components(embedder, features[order])
        heads.append(embedder.head.weight.detach().clone())
    assert torch.allclose(*heads, atol=1e-5)


def test_more_components_than_there_are_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"8 principal.*4 features of 8 numbers"):
        start_as_principal_components(Embedder(Identity(8), 8), torch.randn(4, 8))


def test_a_network_without_a_head_is_refused():
    with pytest.raises(ConfigError, match="Set `dim`"):
        start_as_principal_components(Embedder(Identity(8)), torch.randn(40, 8))
