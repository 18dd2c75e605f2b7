"""A transposed convolution that doubles a map, as one matrix product."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.products import product


class Doubling(nn.ConvTranspose2d):
    """2×2 transposed convolution with stride 2: its windows do not overlap.

    Each pixel becomes a square of four, which is a product with a (C, 4·K) matrix and a change of
    order. On the CPU that took half the time of torch's kernel at 384 channels; elsewhere torch's
    runs. Parameters, keys and initial values are those of `nn.ConvTranspose2d`. The product is in
    the channels-last memory format.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, kernel_size=2, stride=2)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Double a map, (B, C, H, W) -> (B, K, 2H, 2W)."""
        if output_size is not None or not _pays(x):
            return super().forward(x, output_size)
        assert self.bias is not None  # see __init__
        batch, channels, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(-1, channels)
        weight = self.weight.permute(2, 3, 1, 0).reshape(-1, channels)
        out = product(pixels, weight, self.bias.repeat(4))
        out = out.view(batch, height, width, 2, 2, -1).transpose(2, 3)
        return out.reshape(batch, 2 * height, 2 * width, -1).permute(0, 3, 1, 2)


def _pays(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    plain = x.device.type == 'cpu' and x.dtype in (torch.float32, torch.float64) and x.dim() == 4
    return plain and not torch.is_autocast_enabled('cpu')
