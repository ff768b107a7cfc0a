"""Boxes of random area and aspect, against torchvision's loop written out."""

import math

import numpy as np
import pytest
import torch

from vicinal.data.crops import BOXES, PLACE, TRIES, resized_boxes
from vicinal.data.draws import uniform
from vicinal.data.transforms import ImageTransform


def by_hand(height, width, draws, area, ratio):
    """torchvision.transforms.RandomResizedCrop.get_params, one image at a time."""
    tries = iter(draws[BOXES])
    down, across = draws[PLACE]
    for _ in range(TRIES):
        target = height * width * (area[0] + next(tries) * (area[1] - area[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + next(tries) * (high - low))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return [int(down * (height - h + 1)), int(across * (width - w + 1)), h, w]
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize(
    ("area", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (1.0, 1.0)), ((1.0, 1.0), (0.5, 0.5))]
)
def test_boxes_follow_torchvision_s_rule(area, ratio):
    heights, widths = np.array([40, 31, 10, 300]).repeat(50), np.array([40, 57, 90, 20]).repeat(50)
    draws = uniform(0, 0, np.arange(200), BOXES.stop)
    expected = [by_hand(h, w, d, area, ratio) for h, w, d in zip(heights.tolist(), widths.tolist(), draws, strict=True)]
    assert resized_boxes(heights, widths, draws, area, ratio).tolist() == expected


def test_boxes_lie_inside_and_reach_the_edges():
    draws = uniform(0, 0, np.arange(4000), BOXES.stop)
    boxes = resized_boxes(np.full(4000, 32), np.full(4000, 40), draws, (0.2, 1.0), (3 / 4, 4 / 3))
    top, left, height, width = boxes.T
    assert top.min() == left.min() == 0 and (top + height).max() == 32 and (left + width).max() == 40
    shares = height * width / (32 * 40)
    assert shares.min() == pytest.approx(0.2, abs=0.02) and shares.max() > 0.95
    assert (width / height).min() > 0.7 and (width / height).max() < 1.43  # rounded sides


def test_crops_are_cut_by_slices_and_sent_whole():
    crops = ImageTransform(size=4, crop="random", mirror=True).crops(
        np.full(6, 9), np.full(6, 9), uniform(0, 0, np.arange(6), 3)
    )
    part = crops[2:5].to(torch.device("cpu"))
    assert part.top.equal(crops.top[2:5]) and part.mirrored.equal(crops.mirrored[2:5]) and part.colour.shape == (3, 3)
