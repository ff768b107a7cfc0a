"""Triton kernels for depthwise convolutions and their gradients, channels last.

A program holds ``LANES`` tiles of pixels of ``BLOCK`` channels. A tile is unrolled: a pixel is
loaded once and goes to all windows of the tile that hold it, so that a convolution costs little
more than reading and writing its maps. ReLU6 and the shifts of frozen norms before and after a
depthwise convolution are part of its loads and stores; its gradients to maps and weights are
computed together.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(
    first, strips, c, C, HEIGHT, WIDTH, TH: tl.constexpr, TW: tl.constexpr, LANES: tl.constexpr
):
    """Return image, first row, first column [lanes 1] and validity [lanes channels] of the tiles of
    a program."""
    p = first + tl.arange(0, LANES)[:, None]
    across = tl.cdiv(WIDTH, TW)
    down = tl.cdiv(HEIGHT, TH)
    row = p // across % down * TH
    column = p % across * TW
    image = (p // (across * down)).to(tl.int64)
    return image, row, column, (p < strips) & (c < C)


@triton.jit(do_not_specialize=["strips", "H", "W", "HO", "WO"])
def convolve(
    x,
    w,
    before,
    after,
    y,
    strips,
    C,
    H,
    W,
    HO,
    WO,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    K: tl.constexpr,
    S: tl.constexpr,
    TH: tl.constexpr,
    TW: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(C, BLOCK)
    program = tl.program_id(0)
    c = program % blocks * BLOCK + tl.arange(0, BLOCK)[None, :]
    n, ho, wo, ok = _tile(program // blocks * LANES, strips, c, C, HO, WO, TH, TW, LANES)
    taps = ()
    sums = ()
    for t in tl.static_range(K * K):
        taps = taps + (tl.load(w + t * C + c, mask=c < C, other=0.0),)
    bias = tl.load(after + c, mask=c < C, other=0.0) + tl.zeros((LANES, BLOCK), tl.float32)
    for _ in tl.static_range(TH * TW):
        sums = sums + (bias,)
    shift = tl.load(before + c, mask=c < C, other=0.0)
    row = ho * S - TOP
    column = wo * S - LEFT
    corner = x + n * (H * W * C) + ((row * W + column) * C + c)
    for a in tl.static_range(S * (TH - 1) + K):
        there = ok & (row + a >= 0) & (row + a < H)
        for b in tl.static_range(S * (TW - 1) + K):
            inside = there & (column + b >= 0) & (column + b < W)
            v = tl.load(corner + (a * W + b) * C, mask=inside, other=0.0).to(tl.float32)
            v = tl.where(inside, tl.minimum(tl.maximum(v + shift, 0.0), 6.0), 0.0)
            for r in tl.static_range(TH):
                for q in tl.static_range(TW):
                    if a - r * S >= 0 and a - r * S < K and b - q * S >= 0 and b - q * S < K:
                        more = sums[r * TW + q] + v * taps[(a - r * S) * K + b - q * S]
                        sums = sums[: r * TW + q] + (more,) + sums[r * TW + q + 1 :]
    target = y + n * (HO * WO * C) + ((ho * WO + wo) * C + c)
    for r in tl.static_range(TH):
        for q in tl.static_range(TW):
            v = tl.minimum(tl.maximum(sums[r * TW + q], 0.0), 6.0)
            tl.store(
                target + (r * WO + q) * C,
                v.to(y.dtype.element_ty),
                mask=ok & (ho + r < HO) & (wo + q < WO),
            )


@triton.jit(do_not_specialize=["strips", "each", "H", "W", "HO", "WO"])
def convolve_gradients(
    g,
    y,
    w,
    x,
    before,
    dx,
    partial,
    strips,
    each,
    C,
    H,
    W,
    HO,
    WO,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    K: tl.constexpr,
    S: tl.constexpr,
    TH: tl.constexpr,
    TW: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the gradient to the input of ``each`` tiles, and what they add to the gradient to the
    weights.

    TH and TW are multiples of S, so that which taps join an input and an output is known when the
    kernel is built.
    """
    blocks = tl.cdiv(C, BLOCK)
    program = tl.program_id(0)
    part = program // blocks
    c = program % blocks * BLOCK + tl.arange(0, BLOCK)[None, :]
    zero = tl.zeros((LANES, BLOCK), tl.float32)
    added = ()
    for _ in tl.static_range(K * K):
        added = added + (zero,)
    shift = tl.load(before + c, mask=c < C, other=0.0)
    # The first row of outputs that a tile reaches, from its own.
    R0: tl.constexpr = -((K - 1 - TOP) // S)
    Q0: tl.constexpr = -((K - 1 - LEFT) // S)
    RN: tl.constexpr = (TH - 1 + TOP) // S - R0 + 1
    QN: tl.constexpr = (TW - 1 + LEFT) // S - Q0 + 1
    for first in range(part * each, tl.minimum((part + 1) * each, strips), LANES):
        n, h, v, ok = _tile(first, strips, c, C, H, W, TH, TW, LANES)
        at = n * (H * W * C) + ((h * W + v) * C + c)
        sums = ()
        inputs = ()
        for r in tl.static_range(TH):
            for q in tl.static_range(TW):
                inside = ok & (h + r < H) & (v + q < W)
                value = tl.load(x + at + (r * W + q) * C, mask=inside, other=0.0).to(tl.float32)
                value = tl.where(inside, tl.minimum(tl.maximum(value + shift, 0.0), 6.0), 0.0)
                inputs = inputs + (value,)
                sums = sums + (zero,)
        row = h // S + R0
        column = v // S + Q0
        source = n * (HO * WO * C) + ((row * WO + column) * C + c)
        for a in tl.static_range(RN):
            there = ok & (row + a >= 0) & (row + a < HO)
            for b in tl.static_range(QN):
                inside = there & (column + b >= 0) & (column + b < WO)
                value = tl.load(g + source + (a * WO + b) * C, mask=inside, other=0.0).to(
                    tl.float32
                )
                gate = tl.load(y + source + (a * WO + b) * C, mask=inside, other=0.0).to(tl.float32)
                value = tl.where((gate > 0) & (gate < 6), value, 0.0)
                for r in tl.static_range(TH):
                    for q in tl.static_range(TW):
                        if (
                            r + TOP - S * (a + R0) >= 0
                            and r + TOP - S * (a + R0) < K
                            and q + LEFT - S * (b + Q0) >= 0
                            and q + LEFT - S * (b + Q0) < K
                        ):
                            tap = tl.load(
                                w
                                + ((r + TOP - S * (a + R0)) * K + q + LEFT - S * (b + Q0)) * C
                                + c,
                                mask=c < C,
                                other=0.0,
                            )
                            sums = (
                                sums[: r * TW + q]
                                + (sums[r * TW + q] + value * tap,)
                                + sums[r * TW + q + 1 :]
                            )
                            added = (
                                added[: (r + TOP - S * (a + R0)) * K + q + LEFT - S * (b + Q0)]
                                + (
                                    added[(r + TOP - S * (a + R0)) * K + q + LEFT - S * (b + Q0)]
                                    + value * inputs[r * TW + q],
                                )
                                + added[
                                    (r + TOP - S * (a + R0)) * K + q + LEFT - S * (b + Q0) + 1 :
                                ]
                            )
        for r in tl.static_range(TH):
            for q in tl.static_range(TW):
                clipped = (inputs[r * TW + q] <= 0) | (inputs[r * TW + q] >= 6)
                value = tl.where(clipped, 0.0, sums[r * TW + q])
                inside = ok & (h + r < H) & (v + q < W)
                tl.store(dx + at + (r * W + q) * C, value.to(dx.dtype.element_ty), mask=inside)
    channel = program % blocks * BLOCK + tl.arange(0, BLOCK)
    for t in tl.static_range(K * K):
        tl.store(partial + (part * K * K + t) * C + channel, tl.sum(added[t], 0), mask=channel < C)


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


def _maps(like: Tensor, *shape: int) -> Tensor:
    how = {"dtype": like.dtype, "device": like.device}
    return torch.empty(shape, **how, memory_format=torch.channels_last)


def tiles(kernel: int, stride: int, width: int, *, gradient: bool) -> Tiles:
    """Return the tiles for depthwise convolutions over maps of a width: few kinds, since each takes
    seconds to build.

    Those of gradients have whole strides of rows and columns.
    """
    if gradient:  # the sums for 5 x 5 weights leave no room for a second row
        return Tiles(1 if (kernel, stride) == (5, 1) else 2, 4, 16, 16, 4)
    wide = stride == 1 and triton.cdiv(width, 7) * 7 <= triton.cdiv(width, 4) * 4
    return Tiles(2, 7 if wide else 4, 16, 16, 4)


PROGRAMS = 1056  # that sum the gradients of weights, eight for each multiprocessor


@torch.library.custom_op("vicinal::depthwise", mutates_args=())
def depthwise_op(
    x: Tensor, weight: Tensor, before: Tensor, after: Tensor, stride: int, top: int, left: int
) -> Tensor:
    """Compute relu6(conv(relu6(x + before)) + after), each channel by itself."""
    x = x.contiguous(memory_format=torch.channels_last)
    (n, c, h, w) = x.shape
    kernel = weight.shape[2]
    height = -(-h // stride)
    width = -(-w // stride)
    y = _maps(x, n, c, height, width)
    cut = tiles(kernel, stride, width, gradient=False)
    strips = cut.strips(n, height, width)
    # Fmt: skip.
    convolve[cut.grid(strips, c)](
        x,
        _taps(weight),
        before,
        after,
        y,
        strips,
        c,
        h,
        w,
        height,
        width,
        top,
        left,
        kernel,
        stride,
        *cut[:4],
        num_warps=cut.warps,
    )
    return y


@depthwise_op.register_fake
def _(x, weight, before, after, stride, top, left):
    n, c, h, w = x.shape
    return _maps(x, n, c, -(-h // stride), -(-w // stride))


@torch.library.custom_op("vicinal::depthwise_backward", mutates_args=())
def depthwise_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    before: Tensor,
    y: Tensor,
    stride: int,
    top: int,
    left: int,
) -> tuple[Tensor, Tensor]:
    g, x = (maps.contiguous(memory_format=torch.channels_last) for maps in (g, x))
    (n, c, h, w) = x.shape
    kernel = weight.shape[2]
    taps = _taps(weight)
    dx = _maps(x, n, c, h, w)
    cut = tiles(kernel, stride, w, gradient=True)
    strips = cut.strips(n, h, w)
    blocks = triton.cdiv(c, cut.block)
    each = triton.cdiv(triton.cdiv(strips * blocks, PROGRAMS), cut.lanes) * cut.lanes
    parts = triton.cdiv(strips, each)
    partial = torch.empty((parts, kernel * kernel, c), dtype=torch.float32, device=x.device)
    # Fmt: skip.
    convolve_gradients[(parts * blocks,)](
        g,
        y,
        taps,
        x,
        before,
        dx,
        partial,
        strips,
        each,
        c,
        h,
        w,
        *y.shape[2:],
        top,
        left,
        kernel,
        stride,
        *cut[:4],
        num_warps=cut.warps,
    )
    found = weight.new_empty_strided(weight.shape, weight.stride())
    # In the layout that fused optimizers ask for.
    return dx, found.copy_(partial.sum(0).t().view(weight.shape))


def _taps(weight: Tensor) -> Tensor:
    """[taps channels] of a depthwise weight."""
    return weight.flatten(1).t().contiguous()


@depthwise_backward.register_fake
def _(g, x, weight, before, y, stride, top, left):
    return _maps(x, *x.shape), weight.new_empty_strided(weight.shape, weight.stride())


def _remember(ctx, inputs, output):
    x, weight, before, _, *ctx.settings = inputs
    ctx.save_for_backward(x, weight, before, output)


def _differentiate(ctx, g):
    x, weight, before, y = ctx.saved_tensors
    dx, found = torch.ops.vicinal.depthwise_backward(g, x, weight, before, y, *ctx.settings)
    return dx, found, None, None, None, None, None


depthwise_op.register_autograd(_differentiate, setup_context=_remember)
