"""BN-Inception against that of pretrained-models."""

import torch

from vicinal.models import BNInception

# A sample of the public file's names with their shapes: every kind of branch, and both modules that
# halve the side.
PUBLIC = {
    "conv1_7x7_s2.weight": (64, 3, 7, 7),
    "conv1_7x7_s2.bias": (64,),
    "conv2_3x3_reduce_bn.running_mean": (64,),
    "inception_3a_1x1.weight": (64, 192, 1, 1),
    "inception_3a_pool_proj.weight": (32, 192, 1, 1),
    "inception_3c_3x3.weight": (160, 128, 3, 3),
    "inception_3c_double_3x3_2_bn.running_var": (96,),
    "inception_4a_3x3_reduce.weight": (64, 576, 1, 1),
    "inception_4d_pool_proj.weight": (128, 608, 1, 1),
    "inception_4e_double_3x3_2.weight": (256, 256, 3, 3),
    "inception_5a_1x1.weight": (352, 1056, 1, 1),
    "inception_5b_double_3x3_1_bn.bias": (224,),
}


def test_names_size_and_features_are_those_of_the_public_module(filled, picture):
    """Features recorded from pretrainedmodels 0.7.4, with an odd side so that every pooling rounds
    up."""
    ours = filled(BNInception())
    state = ours.state_dict()
    assert {name: tuple(state[name].shape) for name in PUBLIC} == PUBLIC
    assert len(state) == 69 * (2 + 5)  # convolutions with bias, each with its norm
    assert not any(
        name.startswith(("inception_3c_1x1", "inception_3c_pool_proj", "inception_4e_1x1"))
        for name in state
    )
    # 11,295,240 with a classifier of 1,000 x (1,024 + 1)
    assert sum(p.numel() for p in ours.parameters()) == 11_295_240 - 1_025_000
    with torch.no_grad():
        maps = ours(picture(97))
    assert maps.shape == (1, ours.width, 3, 3)
    features = maps.mean(dim=(2, 3))[0]
    torch.testing.assert_close(
        features[:4], torch.tensor([3.6299, 3.7519, 0.0, 0.0]), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(features.norm(), torch.tensor(185.028), rtol=1e-3, atol=0)
