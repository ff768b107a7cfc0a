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
