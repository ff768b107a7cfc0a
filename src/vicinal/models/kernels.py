"""Triton kernels for max pooling and its gradient, channels last.

A program holds ``LANES`` tiles of output pixels of ``BLOCK`` channels. A tile is unrolled: an input pixel is loaded
once and goes to all outputs of the tile whose windows hold it. The place of a maximum in its window is kept as a byte.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(
    first,
    strips,
    blocks,
    block,
    C,
    HEIGHT,
    WIDTH,
    TH: tl.constexpr,
    TW: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return image, first row, first column, channel and validity of the tiles of a program, each [lanes channels]."""
    c = block * BLOCK + tl.arange(0, BLOCK)[None, :] + tl.zeros((LANES, 1), tl.int32)
    p = first + tl.arange(0, LANES)[:, None]
    across, down = tl.cdiv(WIDTH, TW), tl.cdiv(HEIGHT, TH)
    row, column = p // across % down * TH, p % across * TW
    image = (p // (across * down)).to(tl.int64)
    return image, row, column, c, (p < strips) & (c < C)


@triton.jit(do_not_specialize=["strips", "H", "W", "HO", "WO", "PAD"])
def max_pool(
    x,
    y,
    index,
    strips,
    C,
    H,
    W,
    HO,
    WO,
    PAD,
    K: tl.constexpr,
    S: tl.constexpr,
    TH: tl.constexpr,
    TW: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(C, BLOCK)
    program = tl.program_id(0)
    n, ho, wo, c, ok = _tile(
        program // blocks * LANES, strips, blocks, program % blocks, C, HO, WO, TH, TW, LANES, BLOCK
    )
    best, place = (), ()
    for _ in tl.static_range(TH * TW):
        best = best + (tl.full((LANES, BLOCK), float("-inf"), tl.float32),)
        place = place + (tl.zeros((LANES, BLOCK), tl.int32),)
    row, column = ho * S - PAD, wo * S - PAD
    corner = x + n * (H * W * C) + ((row * W + column) * C + c)
    for a in tl.static_range(S * (TH - 1) + K):
        for b in tl.static_range(S * (TW - 1) + K):
            inside = ok & (row + a >= 0) & (row + a < H) & (column + b >= 0) & (column + b < W)
            v = tl.load(corner + (a * W + b) * C, mask=inside, other=float("-inf")).to(tl.float32)
            for r in tl.static_range(TH):
                for q in tl.static_range(TW):
                    if a - r * S >= 0 and a - r * S < K and b - q * S >= 0 and b - q * S < K:
                        better = (v > best[r * TW + q]) | (v != v)
                        place = (
                            place[: r * TW + q]
                            + (tl.where(better, (a - r * S) * K + b - q * S, place[r * TW + q]),)
                            + place[r * TW + q + 1 :]
                        )
                        best = best[: r * TW + q] + (tl.where(better, v, best[r * TW + q]),) + best[r * TW + q + 1 :]
    at = n * (HO * WO * C) + ((ho * WO + wo) * C + c)
    for r in tl.static_range(TH):
        for q in tl.static_range(TW):
            inside = ok & (ho + r < HO) & (wo + q < WO)
            tl.store(y + at + (r * WO + q) * C, best[r * TW + q].to(y.dtype.element_ty), mask=inside)
            tl.store(index + at + (r * WO + q) * C, place[r * TW + q].to(tl.int8), mask=inside)


@triton.jit(do_not_specialize=["strips", "H", "W", "HO", "WO"])
def max_pool_gradient(
    g,
    index,
    dx,
    strips,
    C,
    H,
    W,
    HO,
    WO,
    PAD: tl.constexpr,
    K: tl.constexpr,
    S: tl.constexpr,
    TH: tl.constexpr,
    TW: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(C, BLOCK)
    program = tl.program_id(0)
    n, h, v, c, ok = _tile(program // blocks * LANES, strips, blocks, program % blocks, C, H, W, TH, TW, LANES, BLOCK)
    sums = ()
    for _ in tl.static_range(TH * TW):
        sums = sums + (tl.zeros((LANES, BLOCK), tl.float32),)
    R0: tl.constexpr = -((K - 1 - PAD) // S)
    RN: tl.constexpr = (TH - 1 + PAD) // S - R0 + 1
    QN: tl.constexpr = (TW - 1 + PAD) // S - R0 + 1
    row, column = h // S + R0, v // S + R0
    offset = n * (HO * WO * C) + ((row * WO + column) * C + c)
    for a in tl.static_range(RN):
        for b in tl.static_range(QN):
            inside = ok & (row + a >= 0) & (row + a < HO) & (column + b >= 0) & (column + b < WO)
            value = tl.load(g + offset + (a * WO + b) * C, mask=inside, other=0.0).to(tl.float32)
            place = tl.load(index + offset + (a * WO + b) * C, mask=inside, other=-1).to(tl.int32)
            for r in tl.static_range(TH):
                for q in tl.static_range(TW):
                    if (
                        r + PAD - S * (a + R0) >= 0
                        and r + PAD - S * (a + R0) < K
                        and q + PAD - S * (b + R0) >= 0
                        and q + PAD - S * (b + R0) < K
                    ):
                        sums = (
                            sums[: r * TW + q]
                            + (
                                sums[r * TW + q]
                                + tl.where(place == (r + PAD - S * (a + R0)) * K + q + PAD - S * (b + R0), value, 0.0),
                            )
                            + sums[r * TW + q + 1 :]
                        )
    at = n * (H * W * C) + ((h * W + v) * C + c)
    for r in tl.static_range(TH):
        for q in tl.static_range(TW):
            inside = ok & (h + r < H) & (v + q < W)
            tl.store(dx + at + (r * W + q) * C, sums[r * TW + q].to(dx.dtype.element_ty), mask=inside)


class Tiles(NamedTuple):
    """How a map is cut: rows and columns of a tile, tiles and channels of a program, warps."""

    rows: int
    columns: int
    lanes: int
    block: int
    warps: int

    def strips(self, n: int, height: int, width: int) -> int:
        return int(n * triton.cdiv(height, self.rows) * triton.cdiv(width, self.columns))

    def grid(self, strips: int, channels: int) -> tuple[int]:
        return (triton.cdiv(strips, self.lanes) * triton.cdiv(channels, self.block),)


def tiles(stride: int, channels: int, width: int, *, gradient: bool) -> Tiles:
    """Return the tiles for maps of a width; those of a gradient have whole strides of rows and columns."""
    block = 64 if channels % 64 == 0 or channels >= 480 else 32
    columns = 4 if (gradient and stride == 2) or width % 7 else 7
    return Tiles(2, columns, 256 // block, block, 4)


def _maps(like: Tensor, n: int, c: int, h: int, w: int, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty((n, c, h, w), dtype=dtype or like.dtype, device=like.device, memory_format=torch.channels_last)


@torch.library.custom_op("vicinal::max_pool", mutates_args=())
def max_pool_op(x: Tensor, kernel: int, stride: int, pad: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Compute maxima over windows, and the place of each in its window."""
    x = x.contiguous(memory_format=torch.channels_last)
    n, c, h, w = x.shape
    y, index = _maps(x, n, c, height, width), _maps(x, n, c, height, width, torch.int8)
    cut = tiles(stride, c, width, gradient=False)
    strips = cut.strips(n, height, width)
    max_pool[cut.grid(strips, c)](
        x, y, index, strips, c, h, w, height, width, pad, kernel, stride, *cut[:4], num_warps=cut.warps
    )
    return y, index


@max_pool_op.register_fake
def _(x, kernel, stride, pad, height, width):
    n, c = x.shape[:2]
    return _maps(x, n, c, height, width), _maps(x, n, c, height, width, torch.int8)


@torch.library.custom_op("vicinal::max_pool_backward", mutates_args=())
def max_pool_backward(g: Tensor, index: Tensor, h: int, w: int, kernel: int, stride: int, pad: int) -> Tensor:
    g, index = (maps.contiguous(memory_format=torch.channels_last) for maps in (g, index))
    n, c, height, width = g.shape
    dx = _maps(g, n, c, h, w)
    cut = tiles(stride, c, w, gradient=True)
    strips = cut.strips(n, h, w)
    max_pool_gradient[cut.grid(strips, c)](
        g, index, dx, strips, c, h, w, height, width, pad, kernel, stride, *cut[:4], num_warps=cut.warps
    )
    return dx


@max_pool_backward.register_fake
def _(g, index, h, w, kernel, stride, pad):
    return _maps(g, g.shape[0], g.shape[1], h, w)


def _remember_pool(ctx, inputs, output):
    x, ctx.kernel, ctx.stride, ctx.pad, _, _ = inputs
    ctx.side = x.shape[2:]
    ctx.save_for_backward(output[1])


def _differentiate_pool(ctx, g, _):
    (index,) = ctx.saved_tensors
    dx = torch.ops.vicinal.max_pool_backward(g, index, *ctx.side, ctx.kernel, ctx.stride, ctx.pad)
    return dx, None, None, None, None, None


max_pool_op.register_autograd(_differentiate_pool, setup_context=_remember_pool)
