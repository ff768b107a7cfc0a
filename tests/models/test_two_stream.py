"""Two streams: which network a role takes, and the error without one."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.models import Embedder, Identity, TwoStreamEmbedder


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
