"""Images and features on their way into a network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from vicinal.data.draws import uniform
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError
from vicinal.models.backbone import CAFFE, HALF, IMAGENET


def image(width=12, height=10, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def one(transform, picture, draws=None):
    """One picture on its way into a network; without draws, its center."""
    return transform.batch([picture], None if draws is None else draws[None])[0]


def plain(**settings):
    """Pixels come out as they went in, 0 to 1."""
    return ImageTransform(**{"mean": (0.0,), "std": (1.0,), **settings})


def test_without_draws_the_center_is_cut_and_nothing_is_mirrored():
    transform = plain(size=4, crop="random", mirror=True)
    expected = torch.from_numpy(np.array(image()))[3:7, 4:8].permute(2, 0, 1) / 255
    assert_close(one(transform, image()), expected)
    assert_close(one(transform.evaluation(), image(), np.zeros(3)), expected)


def test_padding_and_a_random_crop_shift_the_image():
    transform = plain(size=10, pad=2, fill=51, crop="random", channels=1)
    gray = image(10, 10, "L")
    shifted = one(transform, gray, np.array([0.0, 0.5, 0.9]))  # two pixels down, none across
    assert_close(shifted[0, :2], torch.full((2, 10), 0.2))
    assert_close(shifted[0, 2:], torch.from_numpy(np.array(gray))[:8] / 255)
    # The center is the image itself.
    assert_close(one(transform, gray), one(plain(size=10, channels=1), gray))


def test_shorter_keeps_the_aspect_and_squash_does_not():
    assert plain(size=20, resize=20).prepare(image(30, 15)).shape == (3, 20, 40)
    assert plain(size=20, resize=20, fit="squash").prepare(image(30, 15)).shape == (3, 20, 20)


def test_the_preprocessing_of_public_weights_is_a_transform_s_normalization():
    for weights in (IMAGENET, HALF, CAFFE):
        transform = ImageTransform(
            size=10, mean=weights.mean, std=weights.std, order=weights.channels, scale=weights.scale
        )
        pixels = one(plain(size=10), image())
        ordered = pixels.flip(0) if weights.channels == "BGR" else pixels
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (weights.mean, weights.std))
        assert_close(one(transform, image()), (ordered * weights.scale - mean) / std)


def test_networks_get_images_with_channels_last():
    images = plain(size=10).batch([image(), image()])
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_a_canvas_is_the_center_square_of_the_resized_image():
    whole, canvas = (
        plain(size=8, resize=10, pad=1, canvas=side).prepare(image(31, 20)) for side in (None, 9)
    )
    assert whole.shape == (3, 12, 18) and canvas.shape == (3, 11, 11)
    # (16 - 9) // 2 = 3.
    assert_close(canvas[:, 1:-1, 1:-1], whole[:, 1:10, 1 + 3 : 1 + 12])
    assert not canvas[:, 0].any()
    with pytest.raises(ConfigError, match=r"square of 14 pixels .* 12 x 10.*lower `canvas`"):
        plain(size=8, canvas=14).prepare(image())


@pytest.mark.parametrize(
    ("settings", "side"),
    [
        ({"resize": 9}, None),
        ({"fit": "squash"}, None),
        ({"resize": 9, "fit": "squash", "pad": 2}, 13),
        ({"resize": 9, "canvas": 8, "pad": 1}, 10),
        ({"resize": 9, "fit": "squash", "canvas": 8}, 8),
    ],
)
def test_the_side_of_prepared_images_is_known_where_it_is_certain(settings, side):
    transform = plain(size=8, **settings)
    assert transform.prepared_side == side
    if side is not None:
        assert transform.prepare(image(17, 12)).shape == (3, side, side)


@pytest.mark.parametrize("crop", ["random", "resized"])
def test_a_batch_is_its_images_one_by_one(crop):
    transform = ImageTransform(size=8, resize=11, pad=1, crop=crop, mirror=True)
    images = [image(12, 10), image(30, 13), image(11, 11)]
    draws = uniform(0, 0, [4, 5, 6], transform.draws)
    alone = torch.stack([one(transform, *each) for each in zip(images, draws, strict=True)])
    assert_close(transform.batch(images, draws), alone, rtol=0, atol=0)
    assert transform.batch([]).shape == (0, 3, 8, 8)


def test_images_are_embedded_at_a_size_of_their_own():
    transform = plain(size=6, canvas=10, crop="resized", test_size=9)
    seen = transform.evaluation()
    assert seen == replace(transform, size=9, test_size=None, crop="center")
    assert_close(one(seen, image()), one(plain(size=9, canvas=10), image()), rtol=0, atol=0)
    with pytest.raises(ConfigError, match=r"size = 6, test_size = 11.*canvas = 10"):
        plain(size=6, canvas=10, test_size=11)


def test_an_image_smaller_than_the_crop_is_rejected_with_both_sizes():
    with pytest.raises(ConfigError, match=r"16 pixels .* image of 12 x 10.*resize"):
        one(plain(size=16), image())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resize": 7}, "must lie in the padded canvas.* resize = 7"),
        ({"mean": (0.5, 0.5)}, r"transform\.mean needs 1 or 3 numbers"),
        ({"resize": 9, "canvas": 10}, "and that in the resized image; got .* canvas = 10"),
        ({"resize": 9, "canvas": 7}, "size = 8, .* canvas = 7"),
        ({"area": (0.2,)}, r"transform\.area must be two rising numbers"),
    ],
)
def test_settings_that_cannot_work_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        ImageTransform(size=8, **settings)
