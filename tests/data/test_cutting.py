"""Cutting in one go on the device against Pillow, one image after another."""

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.crops import Crops
from vicinal.data.cutting import cut_resized, cut_squares, triangle_weights

IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 3, 40, 52), dtype=np.uint8))


def crops(boxes, mirrored):
    top, left, height, width = torch.tensor(boxes).T
    return Crops(top, left, height, width, torch.tensor(mirrored), torch.ones(len(boxes), 3))


def by_pillow(row, box, mirrored, size, *, passes):
    """Passes: the sizes to which Pillow brings the box, one after the other."""
    top, left, height, width = box
    image = Image.fromarray(IMAGES[row].permute(1, 2, 0).numpy()).crop((left, top, left + width, top + height))
    for sides in [(size, height), (size, size)] if passes == 2 else [(size, size)]:
        image = image.resize(sides, Image.Resampling.BILINEAR)
    resized = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return resized.flip(-1) if mirrored else resized


@pytest.mark.parametrize("size", [1, 7, 24, 64])
def test_resized_boxes_are_pillow_s(size):
    boxes = [(0, 0, 40, 52), (3, 5, 24, 24), (0, 30, 40, 22), (39, 51, 1, 1), (10, 2, 5, 50), (7, 9, 31, 17)]
    rows, mirrored = [4, 0, 0, 2, 1, 3], [False, True, False, True, True, False]
    cut = cut_resized(IMAGES, torch.tensor(rows), crops(boxes, mirrored), size)
    assert cut.equal(cut.round())
    for passes, share in ((2, 0.02), (1, 0.1)):  # exact halves; in one call, the order of passes is Pillow's choice
        each = zip(rows, boxes, mirrored, strict=True)
        expected = torch.stack([by_pillow(*one, size, passes=passes) for one in each])
        difference = (cut - expected).abs()
        assert difference.max() <= 1 and difference.mean() < share


def test_a_box_of_the_right_size_is_copied():
    rows, boxes = torch.tensor([1, 3]), crops([(4, 9, 24, 24), (16, 28, 24, 24)], [False, True])
    assert cut_resized(IMAGES, rows, boxes, 24).equal(cut_squares(IMAGES, rows, boxes, 24).float())


def test_squares_are_slices():
    cut = cut_squares(
        IMAGES, torch.tensor([2, 2, 0]), crops([(0, 0, 9, 9), (31, 43, 9, 9), (5, 6, 9, 9)], [False, True, True]), 9
    )
    assert cut.dtype == torch.uint8
    assert cut[0].equal(IMAGES[2, :, :9, :9]) and cut[1].equal(IMAGES[2, :, 31:, 43:].flip(-1))
    assert cut[2].equal(IMAGES[0, :, 5:14, 6:15].flip(-1))


def test_weights_sum_to_one_inside_the_box_and_are_none_outside():
    weights = triangle_weights(torch.tensor([0, 6, 19]), torch.tensor([20, 3, 1]), 8, 20)
    torch.testing.assert_close(weights.sum(dim=2), torch.ones(3, 8))
    assert not weights[1, :, :6].any() and not weights[1, :, 9:].any() and (weights[2, :, 19] == 1).all()


def test_interpolation_keeps_its_precision_under_autocast():
    rows, boxes = torch.tensor([1]), crops([(4, 9, 31, 22)], [False])
    plain = cut_resized(IMAGES, rows, boxes, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cut_resized(IMAGES, rows, boxes, 24).equal(plain)
