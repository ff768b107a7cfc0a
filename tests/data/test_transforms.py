"""Images and features on their way into a network."""

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.draws import uniform
from vicinal.data.transforms import TRANSFORMS, FeatureTransform, ImageTransform
from vicinal.description import build, describe
from vicinal.errors import ConfigError, DataError


def image(width=12, height=10, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def plain(**settings):
    """Pixels come out as they went in, 0 to 1."""
    return ImageTransform(**{"mean": (0.0,), "std": (1.0,), **settings})


def test_without_draws_the_centre_is_cut_and_nothing_is_mirrored():
    transform = plain(size=4, crop="random", mirror=True)
    expected = torch.from_numpy(np.array(image()))[3:7, 4:8].permute(2, 0, 1) / 255
    torch.testing.assert_close(transform(image(), None), expected)
    torch.testing.assert_close(transform.evaluation()(image(), np.array([0.0, 0.0, 0.0])), expected)


@pytest.mark.parametrize(("draws", "top", "left"), [((0.0, 0.0), 0, 0), ((0.999, 0.999), 6, 8), ((0.5, 0.2), 3, 1)])
def test_draws_reach_every_place_of_the_crop(draws, top, left):
    cut = plain(size=4, crop="random")(image(), np.array([*draws, 0.9]))
    expected = torch.from_numpy(np.array(image()))[top : top + 4, left : left + 4].permute(2, 0, 1) / 255
    torch.testing.assert_close(cut, expected)


def test_mirroring_swaps_left_and_right_in_half_of_the_draws():
    transform = plain(size=10, mirror=True)
    straight, mirrored = (transform(image(), np.array([0.5, 0.5, draw])) for draw in (0.5, 0.49))
    torch.testing.assert_close(mirrored, straight.flip(-1))


def test_padding_and_a_random_crop_shift_the_image():
    transform = plain(size=10, pad=2, fill=51, crop="random", channels=1)
    grey = image(10, 10, "L")
    shifted = transform(grey, np.array([0.0, 0.5, 0.9]))  # two pixels down, none across
    torch.testing.assert_close(shifted[0, :2], torch.full((2, 10), 0.2))
    torch.testing.assert_close(shifted[0, 2:], torch.from_numpy(np.array(grey))[:8] / 255)
    torch.testing.assert_close(transform(grey), plain(size=10, channels=1)(grey))  # the centre is the image itself


def test_shorter_keeps_the_aspect_and_squash_does_not():
    assert plain(size=20, resize=20).prepare(image(30, 15)).shape == (3, 20, 40)
    assert plain(size=20, resize=20, fit="squash").prepare(image(30, 15)).shape == (3, 20, 20)


@pytest.mark.parametrize(("mode", "channels"), [("L", 3), ("RGB", 1), ("L", 1), ("RGB", 3)])
def test_images_are_brought_to_the_channels_asked_for(mode, channels):
    assert plain(size=8, channels=channels)(image(mode=mode)).shape == (channels, 8, 8)


def test_mean_and_deviation_are_taken_per_channel():
    transform = ImageTransform(size=10, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    pixels = plain(size=10)(image())
    by_hand = torch.stack([(pixels[c] - (c + 1) / 10) / 2**c for c in range(3)])
    torch.testing.assert_close(transform(image()), by_hand)


def test_a_batch_is_its_images_one_by_one():
    transform = ImageTransform(size=8, resize=11, pad=1, crop="random", mirror=True)
    images = [image(12, 10), image(30, 13), image(11, 11)]
    draws = uniform(0, 0, [4, 5, 6], transform.draws)
    alone = torch.stack([transform(one, numbers) for one, numbers in zip(images, draws, strict=True)])
    torch.testing.assert_close(transform.batch(images, draws), alone, rtol=0, atol=0)
    assert transform.batch([]).shape == (0, 3, 8, 8)


def test_prepared_images_in_one_tensor_give_the_same_pixels():
    """The path that a resident tensor on a device takes: the same parameters, the same last step."""
    transform = ImageTransform(size=8, resize=11, fit="squash", crop="random", mirror=True)
    images = [image(12, 10), image(30, 13)]
    draws = uniform(0, 0, [0, 1], transform.draws)
    resident = torch.stack([transform.prepare(one) for one in images])
    crops = transform.crops(np.full(2, 11), np.full(2, 11), draws)
    rows = torch.from_numpy(crops.top)[:, None] + torch.arange(8)
    columns = torch.from_numpy(crops.left)[:, None] + torch.arange(8)
    cut = resident[torch.arange(2)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    finished = transform.finish(cut, torch.from_numpy(crops.mirrored))
    torch.testing.assert_close(finished, transform.batch(images, draws), rtol=0, atol=0)


def test_crops_are_even_over_all_places():
    transform = plain(size=8, crop="random", mirror=True)
    crops = transform.crops(np.full(6000, 10), np.full(6000, 9), uniform(0, 0, np.arange(6000), 3))
    assert np.bincount(crops.top).tolist() == pytest.approx([2000] * 3, rel=0.08)
    assert np.bincount(crops.left).tolist() == pytest.approx([3000] * 2, rel=0.08)
    assert crops.mirrored.mean() == pytest.approx(0.5, abs=0.03)
    straight = plain(size=8, crop="random").crops(np.full(9, 10), np.full(9, 9), uniform(0, 0, np.arange(9), 3))
    assert not straight.mirrored.any()


@pytest.mark.parametrize(("settings", "count"), [({}, 0), ({"crop": "random"}, 3), ({"mirror": True}, 3)])
def test_only_chance_needs_draws(settings, count):
    assert plain(size=8, **settings).draws == count
    assert plain(size=8, **settings).evaluation().draws == 0


def test_an_image_smaller_than_the_crop_is_refused_with_both_sizes():
    with pytest.raises(DataError, match=r"16 pixels .* image of 12 x 10.*resize"):
        plain(size=16)(image())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size = 0"),
        ({"size": 8, "fit": "square"}, "unknown value of `fit` 'square'"),
        ({"size": 8, "crop": "center"}, "did you mean 'centre'"),
        ({"size": 8, "channels": 4}, "channels = 4"),
        ({"size": 8, "resize": 7}, "cannot be cut"),
        ({"size": 8, "mean": (0.5, 0.5)}, "`mean` has 1 number"),
        ({"size": 8, "std": (0.0,)}, "above 0"),
        ({"size": 8, "fill": 256}, "0 to 255"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ImageTransform(**settings)


def test_features_become_float32_and_may_be_normalised():
    features = np.array([[3, 4], [0, 0]], dtype=np.float16)
    torch.testing.assert_close(FeatureTransform()(features[0]), torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(FeatureTransform(normalize=True).batch(features), torch.tensor([[0.6, 0.8], [0, 0]]))


@pytest.mark.parametrize("transform", [ImageTransform(size=8, mean=(0.1, 0.2, 0.3)), FeatureTransform(normalize=True)])
def test_a_transform_is_rebuilt_from_its_description(transform):
    assert build(describe(transform), TRANSFORMS) == transform
