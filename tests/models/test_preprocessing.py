"""Each family of weights sees what it was trained on."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.models import BNInception, EfficientNetLite, GoogLeNet, Preprocessing, ResNet
from vicinal.models.preprocessing import CAFFE, HALF, IMAGENET

RED = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)


def test_caffe_weights_see_blue_first_from_0_to_255():
    assert CAFFE(RED).flatten().tolist() == [0 - 104, 0 - 117, 255 - 128]


def test_tensorflow_weights_see_minus_one_to_one():
    assert HALF(RED).flatten().tolist() == [1.0, -1.0, -1.0]


def test_torchvision_weights_see_standardised_channels():
    expected = [(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    torch.testing.assert_close(IMAGENET(RED).flatten(), torch.tensor(expected))


@pytest.mark.parametrize("preprocessing", [CAFFE, HALF, IMAGENET])
def test_normalising_rgb_pixels_leaves_only_the_order_of_channels(preprocessing, rng):
    pixels = torch.rand(2, 3, 4, 4, generator=rng)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (preprocessing.rgb_mean, preprocessing.rgb_std))
    normalised = (pixels - mean) / std
    ordered = normalised.flip(1) if preprocessing.channels == "BGR" else normalised
    torch.testing.assert_close(preprocessing(pixels), ordered, rtol=1e-5, atol=1e-4)


def test_backbones_carry_the_preprocessing_of_their_weights():
    found = [kind.preprocessing for kind in (EfficientNetLite, GoogLeNet, ResNet, BNInception)]
    assert found == [HALF, HALF, IMAGENET, CAFFE]


def test_numbers_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="std = \\(1, 0, 1\\)"):
        Preprocessing((0, 0, 0), (1, 0, 1))
    with pytest.raises(ConfigError, match="did you mean 'RGB'"):
        Preprocessing((0, 0, 0), channels="GRB")
