"""Seeded distortions of a drawn character: affine, elastic, stroke weight, brightness and noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

from vicinal.data.draws import uniform

_NODES = 5  # control points per side of the elastic warp: close enough to bend a stroke, too far apart to break it
_AFFINE, _ELASTIC, _TONE = 6, 2 * _NODES**2, 4  # numbers drawn per image for each step
_CHUNK = 512  # images at a time: bounds the memory


@dataclass(frozen=True)
class Distortion:
    """How far a drawing may be bent. Amounts are drawn evenly between minus and plus the one given.

    Attributes:
        angle: rotation, in degrees.
        scale: growth of each axis, as a logarithm to base 2.
        shear: slant, as the tangent of its angle.
        shift: displacement of the whole, as a share of the image's side.
        elastic: displacement of each control point of the elastic warp, as a share of the side.
        stroke: change of the grey level at which a softened stroke ends: thinner and thicker strokes.
        noise: the largest standard deviation of the grey noise, where white is 1.
    """

    # Together they leave raw pixels a R@1 near 0.46 on the test classes, a small trained network one above 0.9.
    angle: float = 15.0
    scale: float = 0.25
    shear: float = 0.2
    shift: float = 0.06
    elastic: float = 0.05
    stroke: float = 0.12
    noise: float = 0.12


def distorted(
    drawings: UInt8[np.ndarray, "m h h"], chosen: Int[np.ndarray, "n"], size: int, seed: int, distortion: Distortion
) -> UInt8[np.ndarray, "n size size"]:
    """Image i shows drawing ``chosen[i]``, distorted by numbers that depend on (seed, i) alone."""
    images = np.empty((len(chosen), size, size), dtype=np.uint8)
    for start in range(0, len(chosen), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(chosen)))
        draws = uniform(seed, 0, rows, _AFFINE + _ELASTIC + _TONE).astype(np.float32) * 2 - 1
        affine, elastic, tone = np.split(draws, [_AFFINE, _AFFINE + _ELASTIC], axis=1)
        places = _affine(affine, size, distortion) + _elastic(elastic, size, distortion)
        grain = uniform(seed, 1, rows, size * size).astype(np.float32).reshape(-1, size, size) * 2 - 1
        images[rows] = _toned(_sampled(drawings, chosen[rows], places), tone, grain, distortion)
    return images


def _affine(draws: Float[np.ndarray, "n 6"], size: int, amount: Distortion) -> Float[np.ndarray, "n 2 size size"]:
    """Where in the drawing (row, column; both run from -1 to 1) each pixel of the image looks."""
    angle, stretch_down, stretch_right, shear, down, right = draws.T
    cosine, sine = np.cos(np.deg2rad(amount.angle) * angle), np.sin(np.deg2rad(amount.angle) * angle)
    slant = amount.shear * shear
    # rotation [[cos, -sin], [sin, cos]] times the slant of an italic [[1, 0], [slant, 1]]; then a scale for each axis
    matrix = np.stack([cosine - sine * slant, -sine, sine + cosine * slant, cosine], axis=1).reshape(-1, 2, 2)
    matrix *= np.exp2(-amount.scale * np.stack([stretch_down, stretch_right], axis=1))[:, :, None]
    centre = 2 * amount.shift * np.stack([down, right], axis=1)
    axis = ((np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1).astype(np.float32)
    pixels = np.stack(np.meshgrid(axis, axis, indexing="ij")).reshape(2, -1)
    places = matrix @ (pixels - centre[:, :, None])
    return places.reshape(-1, 2, size, size).astype(np.float32)


def _elastic(draws: Float[np.ndarray, "n 50"], size: int, amount: Distortion) -> Float[np.ndarray, "n 2 size size"]:
    """A smooth displacement: random control points, joined by a cubic B-spline in both directions."""
    points = 2 * amount.elastic * draws.reshape(-1, 2, _NODES, _NODES)
    place = (np.arange(size) + 0.5) / size * (_NODES - 1)
    gap = np.abs(place[:, None] - np.arange(_NODES))
    near, far = 2 / 3 - gap**2 + gap**3 / 2, np.clip(2 - gap, 0, None) ** 3 / 6
    spline = np.where(gap < 1, near, far)
    spline = (spline / spline.sum(axis=1, keepdims=True)).astype(np.float32)  # the border lacks its outer points
    return np.asarray(spline @ points @ spline.T)


def _sampled(
    drawings: UInt8[np.ndarray, "m h h"], chosen: Int[np.ndarray, "n"], places: Float[np.ndarray, "n 2 size size"]
) -> Float[np.ndarray, "n size size"]:
    """Bilinear samples of the chosen drawings, 0 (black) beyond their edge, 1 for white."""
    side = drawings.shape[1] + 2
    framed = np.pad(drawings, ((0, 0), (1, 1), (1, 1)))  # a black rim: whatever looks further out sees it
    pixels = np.clip((places + 1) * (drawings.shape[1] / 2) + 0.5, 0, side - 1.001)
    corner = pixels.astype(np.int32)
    down, right = np.moveaxis(pixels - corner, 1, 0)
    flat = framed.reshape(-1)
    first = chosen[:, None, None] * (side * side) + corner[:, 0] * side + corner[:, 1]
    upper = flat[first] * (1 - right) + flat[first + 1] * right
    lower = flat[first + side] * (1 - right) + flat[first + side + 1] * right
    return np.asarray((upper * (1 - down) + lower * down) / 255, dtype=np.float32)


def _toned(
    images: Float[np.ndarray, "n size size"],
    draws: Float[np.ndarray, "n 4"],
    grain: Float[np.ndarray, "n size size"],
    amount: Distortion,
) -> UInt8[np.ndarray, "n size size"]:
    """Soften, cut the stroke at a random grey level, dim, and add noise."""
    threshold, contrast, brightness, noise = (column[:, None, None] for column in draws.T)
    soft = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    soft = (soft[:, :-2] + 2 * soft[:, 1:-1] + soft[:, 2:]) / 4
    soft = (soft[:, :, :-2] + 2 * soft[:, :, 1:-1] + soft[:, :, 2:]) / 4
    # 0.35: after softening, a stroke two pixels wide peaks near 0.7, so half of that is its edge
    strokes = np.clip(0.5 + (2.5 + contrast) * (soft - 0.35 - amount.stroke * threshold), 0, 1)
    toned = strokes * (0.8 + 0.2 * brightness)
    toned += np.sqrt(3) * amount.noise * (noise + 1) / 2 * grain  # evenly drawn on [-√3, √3]: deviation 1
    return np.asarray(np.clip(toned, 0, 1) * 255 + 0.5, dtype=np.uint8)
