"""Turning pictures of a batch by any angle, on whatever device they are."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def rotate(images: Float[Tensor, "n c h w"], degrees: Float[Tensor, "n"]) -> Float[Tensor, "n c h w"]:
    """Each square picture turned counter-clockwise about its centre; what comes in at the corners is as the border is.

    The sense of Pillow's ``Image.rotate``. Between pixels bilinear.
    """
    angle = torch.deg2rad(degrees.to(images.dtype))
    zero = torch.zeros_like(angle)
    # Where each pixel comes from: turned back, in coordinates whose second one points down.
    rows = torch.stack([angle.cos(), -angle.sin(), zero]), torch.stack([angle.sin(), angle.cos(), zero])
    grid = functional.affine_grid(torch.stack(rows).permute(2, 0, 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
