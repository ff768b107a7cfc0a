"""The embedder's two outputs, its normalization and its pooling; of two streams, which network a
role takes, and the error without one."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.errors import ConfigError
from vicinal.models import Embedder, Identity, SmallConvNet, TwoStreamEmbedder


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
        embedder = Embedder(network, pooling=pooling)
        assert_close(embedder.features(inputs), expected)
        tokens = maps.flatten(2).transpose(1, 2)
        assert_close(embedder.pool(tokens), expected)  # as the places of a map


def test_the_class_token_and_the_average_leave_each_other_out(rng):
    tokens = torch.randn(2, 5, 6, generator=rng)
    backbone = Identity(6)
    backbone.prefix_tokens = 2
    assert torch.equal(Embedder(backbone, pooling="token").pool(tokens), tokens[:, 0])
    assert_close(Embedder(backbone).pool(tokens), tokens[:, 2:].mean(dim=1))


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


class Compiled:
    """What torch.compile returns has no truth value on some versions of torch."""

    def __init__(self, network):
        self.network = network

    def __call__(self, inputs):
        return 2 * self.network(inputs)

    def __len__(self):
        raise TypeError("SmallConvNet does not support len()")


def test_a_compiled_backbone_takes_training_alone(rng, monkeypatch):
    inputs = torch.rand(2, 3, 32, 32, generator=rng)
    embedder = Embedder(SmallConvNet(3, (4, 8)), 3).eval()
    measured = embedder.maps(inputs)
    monkeypatch.setattr(torch, "compile", Compiled)
    embedder.accelerate(None, compiled=True)
    assert torch.equal(embedder.maps(inputs), measured)
    trained = embedder.train().maps(inputs)
    assert_close(trained, 2 * embedder.backbone(inputs))


def test_a_generalized_mean_of_an_empty_map_passes_finite_gradients():
    maps = torch.zeros(2, 3, 4, 4, requires_grad=True)
    Embedder(SmallConvNet(1, (4, 6)), pooling="generalized").pool(maps).sum().backward()
    assert maps.grad is not None and torch.isfinite(maps.grad).all()


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    return TwoStreamEmbedder(Embedder(Identity(6), 3), Embedder(Identity(6), 3))


def test_a_role_names_its_stream(embedder):
    assert (
        embedder.stream("query") is embedder.query
        and embedder.stream("gallery") is embedder.gallery
    )
    plain = embedder.query
    assert plain.stream("query") is plain.stream("gallery") is plain.stream(None) is plain


def test_without_a_role_nothing_is_embedded(embedder):
    for ask in (embedder, embedder.features, embedder.embed, lambda _: embedder.stream(None)):
        with pytest.raises(ConfigError, match="different networks"):
            ask(torch.zeros(2, 6))


def test_weights_of_a_run_fill_each_network_and_head_that_they_fit(embedder):
    def run(dim=3):
        return TwoStreamEmbedder(Embedder(Identity(6), dim), Embedder(Identity(6), 3))

    def heads(of):
        return [stream.head.weight for stream in of.streams]

    two = run()
    two.take(embedder.state_dict())
    assert two.took_head and all(map(torch.equal, heads(two), heads(embedder)))
    one = embedder.gallery
    for alone, given in ((Embedder(Identity(6), 3), embedder), (run(), one)):
        alone.take(given.state_dict())
        assert all(torch.equal(head, one.head.weight) for head in heads(alone))
    other = run(dim=4)
    other.take(embedder.state_dict())
    assert other.left == ["head of query"] and not other.took_head
    assert torch.equal(other.gallery.head.weight, one.head.weight)
