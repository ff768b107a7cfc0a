"""Colour jitter against Pillow's own enhancements."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from vicinal.data.colour import jitter


def pixels(count=2, channels=3):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, channels, 9, 7))).float()


@pytest.mark.parametrize(
    ("place", "enhancement"), [(0, ImageEnhance.Brightness), (1, ImageEnhance.Contrast), (2, ImageEnhance.Color)]
)
@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.7])
def test_each_factor_does_what_pillow_does(place, enhancement, factor):
    factors = torch.ones(2, 3)
    factors[1, place] = factor
    before = pixels()
    after = jitter(before, factors)
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=1e-3)
    image = Image.fromarray(before[1].byte().permute(1, 2, 0).numpy())
    expected = torch.from_numpy(np.array(enhancement(image).enhance(factor))).permute(2, 0, 1).float()
    assert (after[1] - expected).abs().max() < 1.7  # Pillow rounds the grey and cuts off the result


def test_contrast_starts_from_the_brightness_that_was_set():
    factors = torch.tensor([[0.5, 0.0, 1.0]])
    flat = jitter(pixels(1), factors)
    grey = 0.5 * (pixels(1) * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(dim=1).mean()
    torch.testing.assert_close(flat, grey.expand_as(flat))


def test_grey_images_have_brightness_and_contrast():
    grey = pixels(1, channels=1)
    torch.testing.assert_close(jitter(grey, torch.tensor([[0.5, 1.0, 9.0]])), grey / 2)
    torch.testing.assert_close(
        jitter(grey, torch.tensor([[1.0, 0.0, 1.0]])), grey.mean().expand_as(grey), rtol=0, atol=1e-3
    )


def test_levels_stay_levels_and_the_input_stays_as_it_was():
    before = pixels()
    kept = before.clone()
    after = jitter(before, torch.full((2, 3), 1.9))
    assert before.equal(kept) and after.min() >= 0 and after.max() <= 255
