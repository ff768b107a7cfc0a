"""The orientation head gives directions, and looks at both views."""

import torch

from vicinal.models.orientation import OrientationHead


def test_gives_a_unit_vector_of_sine_and_cosine(rng):
    queries, gallery = torch.randn(2, 7, 5, generator=rng)
    torch.testing.assert_close(OrientationHead(5)(queries, gallery).norm(dim=1), torch.ones(7))


def test_has_the_authors_layers(rng):
    head = OrientationHead(5)
    queries, gallery = torch.randn(2, 7, 5, generator=rng)
    inner = head.first(torch.cat([queries, gallery], dim=1).clamp(min=0)).clamp(min=0)
    out = head.second(inner)
    assert (head.first.in_features, head.first.out_features, head.second.out_features) == (
        10,
        100,
        2,
    )
    torch.testing.assert_close(head(queries, gallery), out / out.norm(dim=1, keepdim=True))


def test_the_order_of_the_views_matters(rng):
    queries, gallery = torch.randn(2, 7, 5, generator=rng)
    head = OrientationHead(5)
    assert not torch.allclose(head(queries, gallery), head(gallery, queries))
