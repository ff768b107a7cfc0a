"""Turned pictures: the sense, the centre, the corners."""

import numpy as np
import torch
from PIL import Image

from vicinal.data.rotation import rotate


def test_quarter_turns_are_those_of_torch(rng):
    images = torch.rand(4, 3, 8, 8, generator=rng)
    found = rotate(images, torch.tensor([0.0, 90.0, 180.0, 270.0]))
    for turns, (picture, turned) in enumerate(zip(images, found, strict=True)):
        torch.testing.assert_close(turned, picture.rot90(turns, dims=(1, 2)), rtol=0, atol=1e-5)


def test_any_angle_has_the_sense_of_pillow(rng):
    smooth = torch.nn.functional.interpolate(torch.rand(1, 1, 5, 5, generator=rng), size=64, mode="bicubic").clamp(0, 1)
    pixels = (255 * smooth[0, 0]).byte().numpy()
    theirs = np.asarray(Image.fromarray(pixels).rotate(37.0, Image.Resampling.BILINEAR), dtype=np.float32)
    ours = rotate(torch.from_numpy(pixels.astype(np.float32))[None, None], torch.tensor([37.0]))[0, 0].numpy()
    inside = slice(16, 48)
    assert np.abs(ours - theirs)[inside, inside].mean() < 1.0
    other = rotate(torch.from_numpy(pixels.astype(np.float32))[None, None], torch.tensor([-37.0]))[0, 0].numpy()
    assert np.abs(other - theirs)[inside, inside].mean() > 10


def test_what_comes_in_at_the_corners_is_as_the_border_is():
    white = torch.ones(1, 1, 8, 8)
    torch.testing.assert_close(rotate(white, torch.tensor([45.0])), white)
