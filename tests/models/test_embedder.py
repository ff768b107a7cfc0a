"""The embedder's two outputs, its normalization and its pooling."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.models import Embedder, Identity, SmallConvNet


def test_normalization_is_explicit(rng):
    inputs = torch.randn(5, 8, generator=rng)
    on = Embedder(Identity(8), 3)
    off = Embedder(Identity(8), 3, normalize=False)
    assert_close(on(inputs).norm(dim=1), torch.ones(5))
    off.load_state_dict(on.state_dict())
    assert_close(off(inputs), off.embed(off.features(inputs)))
    assert_close(torch.nn.functional.normalize(off(inputs), dim=1), on(inputs))


def test_pooling_gives_average_maximum_their_sum_or_what_lies_between(rng):
    inputs = torch.rand(2, 1, 16, 16, generator=rng)
    network = SmallConvNet(1, (4, 6)).eval()
    maps = network(inputs)
    average = maps.mean(dim=(2, 3))
    maximum = maps.amax(dim=(2, 3))
    cubic = maps.clamp(min=0).double().pow(3).mean(dim=(2, 3)).pow(1 / 3).float()
    expectations = {
        "average": average,
        "max": maximum,
        "both": average + maximum,
        "generalized": cubic,
    }
    for pooling, expected in expectations.items():
        assert_close(Embedder(network, pooling=pooling).features(inputs), expected)


@pytest.mark.parametrize("hidden", [None, 6])
def test_a_norm_before_the_head_standardizes_features(hidden, rng):
    inputs = 5 + 3 * torch.randn(40, 8, generator=rng)
    seen = []
    embedder = Embedder(Identity(8), 3, hidden=hidden, head_norm=True)
    embedder.head[1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    embedder.train()(inputs)
    assert_close(seen[0].mean(dim=0), torch.zeros(8), atol=1e-5, rtol=0)
    assert_close(seen[0].var(dim=0, correction=0), torch.ones(8), atol=1e-3, rtol=0)


def test_half_precision_stays_inside_the_backbone_and_out_of_what_is_measured(rng):
    inputs = torch.rand(2, 3, 32, 32, generator=rng)
    embedder = Embedder(SmallConvNet(3, (4, 8)), 3)
    state = {name: value.clone() for name, value in embedder.state_dict().items()}
    measured = embedder.eval()(inputs)
    embedder.accelerate(torch.bfloat16)
    assert torch.equal(embedder(inputs), measured)
    embedder.train()
    inside = []
    embedder.backbone.register_forward_hook(lambda module, given, maps: inside.append(maps.dtype))
    features = embedder.features(inputs)
    assert features.dtype == torch.float32 and inside == [torch.bfloat16]
    features.sum().backward()
    assert {p.grad.dtype for p in embedder.backbone.parameters() if p.grad is not None} == {
        torch.float32
    }
    assert embedder.state_dict().keys() == state.keys()


def test_a_generalized_mean_of_an_empty_map_passes_finite_gradients():
    maps = torch.zeros(2, 3, 4, 4, requires_grad=True)
    Embedder(SmallConvNet(1, (4, 6)), pooling="generalized").pool(maps).sum().backward()
    assert maps.grad is not None and torch.isfinite(maps.grad).all()
