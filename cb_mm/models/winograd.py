"""3×3 convolution with a quarter of the multiplications, for inference on the CPU.

Winograd's F(4×4, 3×3): 4×4 outputs come from 6×6 inputs by 36 products instead of 144. With many
channels the products are 36 matrix products, and the rest is cheap. torch's own convolution on
the CPU does not do this; on a GPU it does, and is used there.

A product of polynomials is the interpolation of the products of their values at some points; a
convolution is the transpose of such a product. The points decide how rounding grows. Those here,
0, ±sqrt(1/2), ±sqrt(2) and infinity, gave a quarter of the error of the usual 0, ±1, ±2, infinity
at 512 channels.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

_POINTS = (0.0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5))
_TILE, _WINDOW = 4, 6  # outputs and inputs along a side


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolution with stride 1 that keeps the size, (B, C, H, W) -> (B, K, H, W); k odd.

    By Winograd's way where that is faster and nobody asks for gradients.
    """
    if _pays(x, weight):
        return winograd_conv2d(x, weight, bias)
    return F.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)


def _pays(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.is_grad_enabled():
        return False
    wide_and_large = min(weight.shape[:2]) >= 256 and x.shape[2] * x.shape[3] >= 4096
    plain = x.device.type == 'cpu' and x.dtype == weight.dtype == torch.float32
    return (
        wide_and_large
        and plain
        and weight.shape[2:] == (3, 3)
        and not torch.is_autocast_enabled('cpu')
    )


def winograd_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The 3×3 convolution; the result is in the channels-last memory format."""
    (batch, channels, height, width), outputs = x.shape, weight.shape[0]
    spread_input, spread_weight, gather = _transforms(x.dtype)
    down, across = -(-height // _TILE), -(-width // _TILE)
    bottom, right = _TILE * down - height, _TILE * across - width
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1 + right, 1, 1 + bottom))
    windows = padded.unfold(1, _WINDOW, _TILE).unfold(2, _WINDOW, _TILE)
    windows = windows.permute(4, 5, 0, 1, 2, 3).reshape(_WINDOW**2, -1)
    values = (spread_input @ windows).view(_WINDOW**2, -1, channels)
    kernel = weight.permute(2, 3, 1, 0).reshape(9, -1)
    kernel = (spread_weight @ kernel).view(_WINDOW**2, channels, outputs)
    products = torch.bmm(values, kernel).view(_WINDOW**2, -1)
    tiles = (gather @ products).view(_TILE, _TILE, batch, down, across, outputs)
    out = tiles.permute(2, 3, 0, 4, 1, 5).reshape(batch, _TILE * down, _TILE * across, outputs)
    out = out[:, :height, :width]
    return (out if bias is None else out + bias).permute(0, 3, 1, 2)


@lru_cache(maxsize=4)
def _transforms(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices on flattened squares: inputs (36, 36), weights (36, 9), outputs (16, 36)."""

    def powers(count: int) -> Tensor:
        rows = [[point**i for i in range(count)] for point in _POINTS]
        infinity = [0.0] * (count - 1) + [1.0]
        return torch.tensor([*rows, infinity], dtype=torch.float64)

    with torch.inference_mode(False):  # the cache must serve other modes too
        sides = torch.linalg.inv(powers(_WINDOW)).T, powers(3), powers(_TILE).T
        inputs, weights, outputs = (torch.kron(side, side).to(dtype) for side in sides)
    return inputs, weights, outputs
