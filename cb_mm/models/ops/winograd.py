"""3×3 convolution with a quarter of the multiplications, on the CPU.

The Winograd algorithm F(4×4, 3×3): 4×4 outputs from 6×6 inputs with 36 products instead of 144.
With many channels the products are 36 matrix products, and the rest is cheap. torch's own
convolution on the CPU does not do this; on a GPU it does, and is used there.

A product of polynomials is the interpolation of the products of their values at some points; a
convolution is the transpose of such a product. The points decide how rounding grows. Those here,
0, ±sqrt(1/2), ±sqrt(2) and infinity, gave a quarter of the error of the usual 0, ±1, ±2, infinity
at 512 channels.

Memory, not arithmetic, limits the transforms: some tiles at a time are gathered, transformed,
multiplied and put in place, so that they stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .finish import Finish
from .products import longest_sum, mkl_is_slow, outer_products, products
from .tiles import TILE, Grid

_POINTS = (0.0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5))
_WINDOW = 6  # inputs along a side of a tile
_POSITIONS = 12  # of the 36 in a window whose weights are kept in one piece
# From here on it took at most 0.81 of the direct algorithm's time on one core, 0.7 in training;
# with 64 channels the transforms cancel the gain.
CHANNELS, _PLACES = 128, 3000
# On one thread: tiles that are multiplied at a time, by MKL and by oneDNN, whose calls take longer
# to begin; and the same for the gradient of the weights, which every product reads and writes.
_CHUNK, _LONGER_CHUNK, _GRADIENT_CHUNK = 128, 256, 1024


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve with stride 1, keeping the size, (B, C, H, W) -> (B, K, H, W); k odd.

    The Winograd algorithm is used where it is faster.
    """
    if _pays(x, weight):
        return winograd_conv2d(x, weight, bias)
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


def _pays(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    batch, _, height, width = x.shape
    wide_and_large = min(weight.shape[:2]) >= CHANNELS and batch * height * width >= _PLACES
    plain = x.device.type == 'cpu' and x.dtype == weight.dtype == torch.float32
    return (
        wide_and_large
        and plain
        and weight.shape[2:] == (3, 3)
        and not torch.is_autocast_enabled('cpu')
    )


def winograd_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the 3×3 convolution; the result is in the channels-last memory format."""
    out = _WinogradConvolution.apply(x, weight)
    return out if bias is None else out + bias[:, None, None]


class _WinogradConvolution(torch.autograd.Function):
    """Both gradients are convolutions too, and gain as much."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x = channels_last(x)
        values = _room(Grid.of(x).tiles, x) if ctx.needs_input_grad[1] else None
        if any(ctx.needs_input_grad[:2]):
            ctx.save_for_backward(values, weight)
        return winograd_products([(x, winograd_kernel(weight))], values).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, weight = ctx.saved_tensors
        grad = channels_last(grad)
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            turned = winograd_kernel(weight, turned=True)
            grad_x = winograd_products([(grad, turned)]).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[1]:
            grad_weight = _weight_gradient(values, grad)
        return grad_x, grad_weight


def winograd_kernel(weight: Tensor, turned: bool = False) -> list[list[Tensor]]:
    """Transform weights (K, C, 3, 3) into their values at the points, a few of (n, C, K).

    Read in their own order, and kept in pieces that the C library does not request from the
    system and give back each time, weights are transformed in a tenth of the time.

    Args:
        weight: Of the convolution.
        turned: Transform those of the convolution that is its gradient, into (n, K, C).

    Returns:
        For a few points at a time, the values for a part of the channels each (`longest_sum`).
    """
    _, spread, _ = _transforms(weight.dtype)
    spread = spread.flip(1) if turned else spread
    if turned and mkl_is_slow():  # oneDNN needs them in the order of their outputs
        weight, turned = weight.transpose(0, 1), False
    dim = 0 if turned else 1  # the channels that are added up
    parts = weight.split(longest_sum(weight.shape[dim]), dim)
    columns = [part.reshape(-1, 9).T for part in parts]
    kernel = []
    for rows in spread.split(_POSITIONS):
        values = [
            (rows @ each).view(-1, *part.shape[:2])
            for each, part in zip(columns, parts, strict=True)
        ]
        kernel.append(values if turned else [value.transpose(1, 2) for value in values])
    return kernel


def winograd_products(
    parts: Sequence[tuple[Tensor, Sequence[Sequence[Tensor]]]],
    values: Tensor | None = None,
    onto: Tensor | None = None,
    finish: Finish | None = None,
) -> Tensor:
    """Return the sum of the convolutions of some maps, (B, H, W, K), without gradients.

    Args:
        parts: Maps (B, H, W, C_i) of one size, each with its transformed weights.
        values: Room (36, tiles, C) for the values of the only map, where they are to be kept.
        onto: (B, H, W, K) that the result is added to, in place.
        finish: What to do to the sum.
    """
    (first, kernel), *_ = parts
    grid, outputs = Grid.of(first), kernel[0][0].shape[2]
    add = onto is not None
    out = first.new_empty(*first.shape[:3], outputs) if onto is None else onto
    chunks = list(grid.chunks(_LONGER_CHUNK if mkl_is_slow() else _CHUNK))
    # All chunks use the same memory: what is requested anew comes page by page from the system.
    most = len(chunks[0]) * grid.across
    room = _room(most, first, outputs)
    inputs = [_room(most, x) for x, _ in parts] if values is None else []
    for rows in chunks:
        count = len(rows) * grid.across
        sums = room[:, :count]
        for i, (x, kernel) in enumerate(parts):
            seen = inputs[i][:, :count] if values is None else values[:, grid.places(rows)]
            _input_values(x, grid, rows, seen)
            pieces = zip(sums.split(_POSITIONS), seen.split(_POSITIONS), kernel, strict=True)
            for one, some, weights in pieces:
                products(some, weights, out=one, add=i > 0)
        _place(sums, grid, rows, out, add, finish)
    return out


def _place(
    sums: Tensor, grid: Grid, rows: range, out: Tensor, add: bool, finish: Finish | None
) -> None:
    """Turn sums of products (36, tiles, K) into the outputs of these rows of tiles."""
    _, _, gather = _transforms(out.dtype)
    outputs = out.shape[3]
    for block in grid.blocks(rows, outputs):
        tiles = gather @ sums[:, block.tiles].reshape(_WINDOW**2, -1)
        tiles = tiles.view(TILE, TILE, block.down, block.across, outputs).permute(2, 0, 3, 1, 4)
        place = out[block.image, block.top : block.bottom, block.left : block.right]
        height, width = TILE * block.down, TILE * block.across
        if place.shape[:2] == (height, width):
            place = place.view(block.down, TILE, block.across, TILE, outputs)
        else:  # at the lower and right borders a tile may go beyond the map
            tiles = tiles.reshape(height, width, outputs)[: place.shape[0], : place.shape[1]]
        if add:
            place.add_(tiles)
        else:
            place.copy_(tiles)
        if finish is not None:
            finish.apply_(place)


def _input_values(x: Tensor, grid: Grid, rows: range, out: Tensor) -> None:
    """Write the values at the points of the windows of x (B, H, W, C) to out (36, tiles, C)."""
    spread, _, _ = _transforms(x.dtype)
    _spread(x, spread, _WINDOW, grid, rows, out)


def _output_values(grad: Tensor, grid: Grid, rows: range, out: Tensor) -> None:
    """Transform tiles of the result back: (B, H, W, K) to out (36, tiles, K)."""
    _, _, gather = _transforms(grad.dtype)
    _spread(grad, gather.T, TILE, grid, rows, out)


def _spread(x: Tensor, matrix: Tensor, side: int, grid: Grid, rows: range, out: Tensor) -> None:
    """Multiply squares of x (B, H, W, C) around each tile, side × side, with a matrix."""
    border, channels = (side - TILE) // 2, x.shape[3]
    for block in grid.blocks(rows, channels):
        patch = _cut(
            x[block.image], block.top - border, block.bottom + border, block.left - border,
            block.right + border,
        )  # fmt: skip
        squares = patch.unfold(0, side, TILE).unfold(1, side, TILE).permute(3, 4, 0, 1, 2)
        torch.mm(matrix, squares.reshape(side**2, -1), out=out[:, block.tiles].flatten(1))


def _cut(x: Tensor, top: int, bottom: int, left: int, right: int) -> Tensor:
    """Return a part of x (H, W, C), with zeros where it goes beyond."""
    height, width, _ = x.shape
    above, below = max(-top, 0), max(bottom - height, 0)
    before, after = max(-left, 0), max(right - width, 0)
    part = x[top + above : bottom - below, left + before : right - after]
    if above or below or before or after:
        part = F.pad(part, (0, 0, before, after, above, below))
    return part


def _weight_gradient(values: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient (K, C, 3, 3) of the weights from that of the result, (B, H, W, K)."""
    grid, outputs, channels = Grid.of(grad), grad.shape[3], values.shape[2]
    total = values.new_zeros(_WINDOW**2, outputs, channels)
    chunks = list(grid.chunks(_GRADIENT_CHUNK))
    room = _room(len(chunks[0]) * grid.across, grad)
    for rows in chunks:
        seen = room[:, : len(rows) * grid.across]
        _output_values(grad, grid, rows, seen)
        outer_products(seen, values[:, grid.places(rows)], onto=total)
    _, spread, _ = _transforms(grad.dtype)
    return (total.view(_WINDOW**2, -1).T @ spread).view(outputs, channels, 3, 3)


def channels_last(x: Tensor) -> Tensor:
    """Turn a map (B, C, H, W) into (B, H, W, C), a copy only where it is needed."""
    return x.permute(0, 2, 3, 1).contiguous()


def _room(tiles: int, like: Tensor, channels: int | None = None) -> Tensor:
    """Return memory for 36 numbers per tile and channel, (36, tiles, C).

    Between the 36 is room for one tile more: rows whose distance is a power of two would compete
    for the same places in the cache.
    """
    width = like.shape[-1] if channels is None else channels
    return like.new_empty(_WINDOW**2, tiles + 1, width)[:, :tiles]


@lru_cache(maxsize=4)
def _transforms(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return matrices on flattened squares: inputs (36, 36), weights (36, 9), outputs (16, 36)."""

    def powers(count: int) -> Tensor:
        rows = [[point**i for i in range(count)] for point in _POINTS]
        infinity = [0.0] * (count - 1) + [1.0]
        return torch.tensor([*rows, infinity], dtype=torch.float64)

    with torch.inference_mode(False):  # the cache must serve other modes too
        sides = torch.linalg.inv(powers(_WINDOW)).T, powers(3), powers(TILE).T
        inputs, weights, outputs = (torch.kron(side, side).to(dtype) for side in sides)
    return inputs, weights, outputs
