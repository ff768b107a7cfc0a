"""The orientation head gives directions, and looks at both views."""

import torch

from vicinal.methods.her import OrientationHead


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
