"""ResNet against torchvision's, BN-Inception against that of pretrained-models, and the shape of
SmallResNet."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.arguments import describe
from vicinal.errors import ConfigError
from vicinal.models import BNInception, ModelConfig, ResNet, SmallConvNet, SmallResNet
from vicinal.models.backbone import Preprocessing


@pytest.mark.parametrize(
    ("make", "parameters", "width", "first", "norm"),
    [
        (lambda: ResNet(18), 11_176_512, 512, [4.5093, 1.4639, 1.1313, 28.458], 408.014),
        (lambda: ResNet(50), 23_508_032, 2048, [2833.9, 5190.1, 0.0, 5376.1], 176_046.7),
        # 11,295,240 with a classifier of 1,000 x (1,024 + 1)
        (BNInception, 10_270_240, 1024, [3.6299, 3.7519, 0.0, 0.0], 185.028),
    ],
)
def test_names_size_and_features_are_those_of_the_public_module(
    make, parameters, width, first, norm, filled, picture
):
    """Features recorded from torchvision 0.29 and pretrainedmodels 0.7.4, with an odd side so that
    every pooling rounds up; each tensor is filled by its name, so that another name would show."""
    ours = filled(make())
    assert (sum(p.numel() for p in ours.parameters()), ours.width) == (parameters, width)
    with torch.no_grad():
        maps = ours(picture(97))
    side = 3 if make is BNInception else 4
    assert maps.shape == (1, width, side, side)
    features = maps.mean(dim=(2, 3))[0]
    assert_close(features[:4], torch.tensor(first), rtol=1e-3, atol=1e-3)
    assert_close(features.norm(), torch.tensor(norm), rtol=1e-3, atol=0)


def test_other_depths_and_versions_raise():
    with pytest.raises(ConfigError, match=r"ResNet\.depth: unknown value .20."):
        ResNet(20)
    with pytest.raises(ConfigError, match=r"ResNet\.version: unknown value 'v2'"):
        ResNet(50, version="v2")
    with pytest.raises(ConfigError, match="did you mean 'fcam'"):
        ResNet(18, attention="fcan")


def test_the_first_version_strides_in_the_first_convolution():
    """He et al. 2016, Section 3.3."""
    first = ResNet(50, version="v1")
    later = ResNet(50)
    strides = {
        version: [
            getattr(getattr(network, f"layer{stage}")[0], f"conv{place}").stride[0]
            for stage in (1, 2, 4)
            for place in (1, 2, 3)
        ]
        for version, network in (("v1", first), ("v1.5", later))
    }
    assert strides == {"v1": [1, 1, 1, 2, 1, 1, 2, 1, 1], "v1.5": [1, 1, 1, 1, 2, 1, 1, 2, 1]}
    assert first.state_dict().keys() == later.state_dict().keys()
    assert describe(first)["version"] == "v1"


def test_weights_of_the_authors_see_bgr_in_0_to_255():
    config = ModelConfig(name="resnet50", weights="none", preprocessing="caffe")
    assert config.expected == Preprocessing(
        (103.939, 116.779, 123.68), channels="BGR", scale=255.0, size=224
    )


@pytest.mark.parametrize(("stride", "side"), [(1, 8), (2, 4)])
def test_each_stage_but_the_first_halves_the_side(stride, side):
    network = SmallResNet(1, (4, 8, 12), stride=stride)
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 12, side, side)
    assert network.width == 12 and len(network.stages) == 3


@pytest.mark.parametrize("network", [SmallConvNet, SmallResNet])
def test_a_network_without_blocks_is_rejected(network):
    with pytest.raises(ConfigError, match="at least one block, got empty widths"):
        network(widths=())
