"""Feature maps of several strides from a transformer that has only one."""

from __future__ import annotations

from collections.abc import Sequence

from mmcv.cnn import build_norm_layer
from torch import Tensor, nn

from ...errors import UserError
from .doubling import Doubling


class FeaturePyramid(nn.Module):
    """Pyramid that brings each map to its own scale, with XCiT's layers for patch size 16.

    A scale of 4 is two 2×2 transposed convolutions with a norm and GELU between, 2 is one, 1 is
    the map itself and 0.5 a 2×2 max pool. With patches of 16 pixels the default scales give the
    strides 4, 8, 16 and 32; with other patches the strides are in the same proportion (patch 14:
    3.5, 7, 14, 28).

    A map with an odd number of cells loses none of them in the pool: the last window is narrower.

    Args:
        width: Channels of every map, kept by every scale.
        scales: One factor per map: 4, 2, 1 or 0.5.
        norm_cfg: Norm between the transposed convolutions, as in every OpenMMLab config.
    """

    def __init__(
        self,
        width: int,
        scales: Sequence[float] = (4, 2, 1, 0.5),
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__()
        self.scales = tuple(scales)
        self.steps = nn.ModuleList(
            self._step(width, scale, norm_cfg or {'type': 'BN'}) for scale in scales
        )

    @staticmethod
    def _step(width: int, scale: float, norm_cfg: dict) -> nn.Module:
        def double() -> nn.Module:
            return Doubling(width, width)

        if scale == 4:
            norm = build_norm_layer(norm_cfg, width)[1]
            return nn.Sequential(double(), norm, nn.GELU(), double())
        if scale == 2:
            return nn.Sequential(double())
        if scale == 1:
            return nn.Identity()
        if scale == 0.5:
            return nn.MaxPool2d(kernel_size=2, stride=2, ceil_mode=True)
        raise UserError(f'pyramid has the scale {scale!r}; only 4, 2, 1 and 0.5 are supported.')

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Rescale one (B, C, h, w) map per scale to (B, C, scale·h, scale·w), halves rounded up."""
        return tuple(step(x) for step, x in zip(self.steps, maps, strict=True))
