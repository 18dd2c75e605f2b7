"""ViTDet's simple feature pyramid: all levels from the last map of a plain backbone."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from timm.layers import LayerNorm2d
from torch import Tensor, nn

from ...errors import UserError
from .doubling import Doubling


@MODELS.register_module()
class SimplePyramid(BaseModule):
    """A neck that makes every level from one map, as ViTDet does instead of an FPN.

    A level at 4 times the map's resolution is two 2×2 transposed convolutions, which halve the
    channels each, with a norm and GELU between; at 2 times one; at 1 the map itself; at 0.5 a 2×2
    max pool. A 1×1 and a 3×3 convolution, each with a norm over the channels, follow. Levels
    beyond the scales take every second cell of the one before.

    Args:
        in_channels: Channels of the map: the backbone's ``embed_dims``.
        out_channels: Channels of every level.
        num_outs: Number of levels; at least one per scale.
        scales: Resolution of the levels over that of the map: 4, 2, 1 or 0.5.
        init_cfg: As in every mmengine module.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        num_outs: int = 5,
        scales: Sequence[float] = (4, 2, 1, 0.5),
        init_cfg: dict | list[dict] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if num_outs < len(scales):
            raise UserError(f'num_outs={num_outs} is less than the {len(scales)} scales.')
        self.num_outs = num_outs
        self.levels = nn.ModuleList(_level(in_channels, out_channels, scale) for scale in scales)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Compute the levels from the last of the maps, (B, in_channels, h, w)."""
        levels = [level(maps[-1]) for level in self.levels]
        while len(levels) < self.num_outs:
            levels.append(F.max_pool2d(levels[-1], kernel_size=1, stride=2))
        return tuple(levels)


def _level(width: int, out_channels: int, scale: float) -> nn.Sequential:
    half, quarter = width // 2, width // 4
    resample: dict[float, tuple[list[nn.Module], int]] = {
        4: (
            [
                Doubling(width, half),
                LayerNorm2d(half),
                nn.GELU(),
                Doubling(half, quarter),
            ],
            quarter,
        ),
        2: ([Doubling(width, half)], half),
        1: ([], width),
        0.5: ([nn.MaxPool2d(kernel_size=2, stride=2, ceil_mode=True)], width),
    }
    if scale not in resample:
        raise UserError(f'scales has {scale!r}; only 4, 2, 1 and 0.5 are supported.')
    layers, channels = resample[scale]
    return nn.Sequential(
        *layers,
        nn.Conv2d(channels, out_channels, kernel_size=1, bias=False),
        LayerNorm2d(out_channels),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
        LayerNorm2d(out_channels),
    )
