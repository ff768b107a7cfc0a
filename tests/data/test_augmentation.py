"""Augmentation of batches: boxes, cutting and rotation, against Pillow and torchvision."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.draws import uniform
from vicinal.data.transforms import (
    BOXES,
    PLACE,
    RATIO,
    TRIES,
    Crops,
    cut_resized,
    resized_boxes,
    rotate,
)


def by_hand(height, width, draws, area):
    """torchvision.transforms.RandomResizedCrop.get_params, one image at a time."""
    tries = iter(draws[BOXES])
    down, across = draws[PLACE]
    low, high = map(math.log, RATIO)
    for _ in range(TRIES):
        target = height * width * (area[0] + next(tries) * (area[1] - area[0]))
        aspect = math.exp(low + next(tries) * (high - low))
        w = round(math.sqrt(target * aspect))
        h = round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return [int(down * (height - h + 1)), int(across * (width - w + 1)), h, w]
    w = width
    h = height
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize("area", [(0.08, 1.0), (0.9, 1.0), (1.0, 1.0)])
def test_boxes_follow_torchvision_s_rule(area):
    heights = np.array([40, 31, 10, 300]).repeat(50)
    widths = np.array([40, 57, 90, 20]).repeat(50)
    draws = uniform(0, 0, np.arange(200), BOXES.stop)
    expected = [
        by_hand(h, w, d, area)
        for h, w, d in zip(heights.tolist(), widths.tolist(), draws, strict=True)
    ]
    assert resized_boxes(np.stack([heights, widths], axis=1), draws, area).tolist() == expected


IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 40, 52, 3), dtype=np.uint8))


def crops(boxes, mirrored):
    return Crops(torch.tensor(boxes), torch.tensor(mirrored))


def by_pillow(row, box, mirrored, size, *, passes):
    """Passes: the sizes to which Pillow brings the box, one after the other."""
    top, left, height, width = box
    image = Image.fromarray(IMAGES[row].numpy()).crop((left, top, left + width, top + height))
    for sides in [(size, height), (size, size)] if passes == 2 else [(size, size)]:
        image = image.resize(sides, Image.Resampling.BILINEAR)
    resized = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return resized.flip(-1) if mirrored else resized


@pytest.mark.parametrize("size", [1, 7, 24, 64])
def test_resized_boxes_are_pillow_s(size):
    boxes = [
        (0, 0, 40, 52),
        (3, 5, 24, 24),
        (0, 30, 40, 22),
        (39, 51, 1, 1),
        (10, 2, 5, 50),
        (7, 9, 31, 17),
    ]
    rows = [4, 0, 0, 2, 1, 3]
    mirrored = [False, True, False, True, True, False]
    cut = cut_resized(IMAGES, torch.tensor(rows), crops(boxes, mirrored), size)
    assert cut.equal(cut.round())
    # Exact halves; in one call, the order of passes is Pillow's choice.
    for passes, share in (
        (2, 0.02),
        (1, 0.1),
    ):
        each = zip(rows, boxes, mirrored, strict=True)
        expected = torch.stack([by_pillow(*one, size, passes=passes) for one in each])
        difference = (cut - expected).abs()
        assert difference.max() <= 1 and difference.mean() < share


def test_interpolation_keeps_its_precision_under_autocast():
    rows = torch.tensor([1])
    boxes = crops([(4, 9, 31, 22)], [False])
    plain = cut_resized(IMAGES, rows, boxes, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cut_resized(IMAGES, rows, boxes, 24).equal(plain)


def test_quarter_turns_are_those_of_torch(rng):
    images = torch.rand(4, 3, 8, 8, generator=rng)
    found = rotate(images, torch.tensor([0.0, 90.0, 180.0, 270.0]))
    for turns, (picture, turned) in enumerate(zip(images, found, strict=True)):
        torch.testing.assert_close(turned, picture.rot90(turns, dims=(1, 2)), rtol=0, atol=1e-5)


def test_any_angle_has_the_sense_of_pillow():
    pixels = np.hypot(*np.indices((64, 64))).astype(np.uint8)  # rings about a corner
    theirs = Image.fromarray(pixels).rotate(37.0, Image.Resampling.BILINEAR)
    both = torch.from_numpy(pixels).float().expand(2, 1, 64, 64)
    differences = (rotate(both, torch.tensor([37.0, -37.0])) - torch.tensor(np.array(theirs))).abs()
    same, other = differences[:, 0, 16:48, 16:48].mean(dim=(1, 2))
    assert same < 1.0 and other > 5
