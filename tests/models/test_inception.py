"""GoogLeNet against torchvision's, BN-Inception against that of pretrained-models."""

import pytest
import torch

from vicinal.models import BNInception, GoogLeNet
from vicinal.models.backbone import IMAGENET, load_weights

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


def test_size_and_features_are_those_of_torchvisions_module(filled, picture):
    """Features recorded from torchvision 0.29, with an odd side so that every pooling rounds up."""
    ours = filled(GoogLeNet())
    # 6,624,904 by torchvision's own account, less a classifier of 1,000 x (1,024 + 1)
    assert sum(p.numel() for p in ours.parameters()) == 6_624_904 - 1_025_000
    with torch.no_grad():
        maps = ours(picture(97))
    assert maps.shape == (1, ours.width, 3, 3)
    features = maps.mean(dim=(2, 3))[0]
    torch.testing.assert_close(
        features[:4], torch.tensor([2.1826, 8.5418, 9.6993, 34.727]), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(features.norm(), torch.tensor(429.647), rtol=1e-3, atol=0)


@pytest.mark.parametrize("side", [64, 97])
def test_loads_torchvisions_weights_and_gives_its_features(
    side, filled, picture, torchvision_models
):
    theirs = filled(
        torchvision_models.googlenet(weights=None, init_weights=False, transform_input=False)
    )
    ours = GoogLeNet().eval()
    report = load_weights(ours, theirs.state_dict(), ignore=ours.classifiers)
    assert {name.split(".")[0] for name in report.ignored} == {"aux1", "aux2", "fc"}
    with torch.no_grad():
        torch.testing.assert_close(
            theirs.fc(ours(picture(side)).mean(dim=(2, 3))), theirs(picture(side))
        )


def test_torchvisions_own_mapping_of_inputs_equals_our_preprocessing(
    torchvision_models, preprocessed, rng
):
    """Its pre-trained module is given ImageNet's normalization and undoes it
    (``transform_input``)."""
    theirs = torchvision_models.googlenet(weights=None, init_weights=False, transform_input=True)
    pixels = torch.rand(1, 3, 4, 4, generator=rng)
    given, expected = preprocessed(IMAGENET, pixels), preprocessed(GoogLeNet.preprocessing, pixels)
    torch.testing.assert_close(theirs._transform_input(given), expected)


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


@pytest.mark.parametrize(
    ("network", "apart", "joined"), [(GoogLeNet, 57, 39), (BNInception, 69, 51)]
)
@pytest.mark.parametrize("frozen", [True, False])
def test_on_a_gpu_convolutions_of_the_same_maps_are_one(
    network, apart, joined, frozen, filled, picture, monkeypatch
):
    """The same forward and backward; a norm by the statistics of the batch keeps them apart."""
    backbone, inputs = (
        filled(network(freeze_norm=frozen)).double().train(),
        picture(65).double().repeat(2, 1, 1, 1),
    )
    weights = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    convolve, passes = torch.nn.Conv2d._conv_forward, []
    for on_gpu in (False, True):
        made = []
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.nn.Conv2d,
                "_conv_forward",
                lambda *a, made=made: made.append(None) or convolve(*a),
            )
            patch.setattr(torch.Tensor, "is_cuda", on_gpu)
            maps = backbone(inputs)
            gradients = torch.autograd.grad(maps.square().mean(), weights)
        assert len(made) == (joined if on_gpu and frozen else apart)
        passes.append((maps.detach(), *gradients))
    for ours, theirs in zip(*passes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10 * float(theirs.abs().max()))


@pytest.mark.gpu
@pytest.mark.parametrize("network", [GoogLeNet, BNInception])
def test_features_on_a_gpu_are_those_of_the_cpu(network, filled, picture):
    backbone, inputs = filled(network(freeze_norm=True)).double(), picture(97).double()
    with torch.no_grad():
        expected = backbone(inputs)
        torch.testing.assert_close(backbone.cuda()(inputs.cuda()).cpu(), expected)
