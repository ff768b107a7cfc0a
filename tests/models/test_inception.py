"""BN-Inception against that of pretrained-models."""

import torch
from torch.testing import assert_close

from vicinal.models import BNInception


def test_names_size_and_features_are_those_of_the_public_module(filled, picture):
    """Features recorded from pretrainedmodels 0.7.4, with an odd side so that every pooling rounds
    up; each tensor is filled by its name, so that another name would show."""
    ours = filled(BNInception())
    # 11,295,240 with a classifier of 1,000 x (1,024 + 1)
    assert sum(p.numel() for p in ours.parameters()) == 11_295_240 - 1_025_000
    with torch.no_grad():
        maps = ours(picture(97))
    assert maps.shape == (1, ours.width, 3, 3)
    features = maps.mean(dim=(2, 3))[0]
    assert_close(features[:4], torch.tensor([3.6299, 3.7519, 0.0, 0.0]), rtol=1e-3, atol=1e-3)
    assert_close(features.norm(), torch.tensor(185.028), rtol=1e-3, atol=0)
