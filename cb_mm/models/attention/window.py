"""Attention in windows, as in ViTDet: a patch attends to the patches of its window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers import Attention
from torch import Tensor

from .token_grid import GridAttention, TokenGrid


class WindowAttention(GridAttention):
    """Attention in windows that do not overlap, from the top left corner of the grid.

    ViTDet has no prefix tokens. Here a patch also attends to them, in every window, and they
    attend to all tokens: our reading, with which one window over the whole grid is timm's
    attention. Windows over the edge of the grid are smaller; ViTDet lets the zeros that it pads
    with take part.

    Args:
        attention: The dense attention that this one replaces.
        window: Side of a window in patches.
        grid: Gives the grid of a forward pass.
    """

    def __init__(self, attention: Attention, window: int, grid: TokenGrid) -> None:
        super().__init__(attention, grid, 'window')
        self.window = window

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: D102
        prefix, (rows, columns) = self.grid.prefix, self.grid.of(q.shape[2])
        if self.window >= max(rows, columns):
            return F.scaled_dot_product_attention(q, k, v, scale=1.0)
        patches = [x[:, :, prefix:].unflatten(2, (rows, columns)) for x in (q, k, v)]
        queries, keys, values = (_cut(x, self.window) for x in patches)
        count = queries.shape[1]
        keys, values = (
            torch.cat([x[:, None, :, :prefix].expand(-1, count, -1, -1, -1), inside], dim=3)
            for x, inside in ((k, keys), (v, values))
        )
        mixed = F.scaled_dot_product_attention(
            queries.flatten(0, 1),
            keys.flatten(0, 1),
            values.flatten(0, 1),
            attn_mask=self._padding(rows, columns, q),
            scale=1.0,
        )
        spatial = _join(mixed.unflatten(0, (-1, count)), rows, columns, self.window).flatten(2, 3)
        if not prefix:
            return spatial
        first = F.scaled_dot_product_attention(q[:, :, :prefix], k, v, scale=1.0)
        return torch.cat([first, spatial], dim=2)

    def _padding(self, rows: int, columns: int, q: Tensor) -> Tensor | None:
        """Return a mask (B · windows, 1, 1, keys) that leaves out the padding; None without any."""
        if rows % self.window == 0 and columns % self.window == 0:
            return None
        real = torch.ones(1, 1, rows, columns, 1, dtype=torch.bool, device=q.device)
        inside = _cut(real, self.window)[0, :, :, :, 0]  # (windows, 1, window²)
        keys = F.pad(inside, (self.grid.prefix, 0), value=True)[:, :, None]
        return keys.repeat(q.shape[0], 1, 1, 1)

    def mask(self, tokens: int, device: torch.device) -> Tensor:  # noqa: D102
        prefix, (rows, columns) = self.grid.prefix, self.grid.of(tokens)
        row = torch.arange(rows, device=device) // self.window
        column = torch.arange(columns, device=device) // self.window
        number = (row[:, None] * columns + column).flatten()
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device=device)
        mask[prefix:, prefix:] = number[:, None] == number
        return mask


def _cut(x: Tensor, window: int) -> Tensor:
    """Cut (B, heads, rows, columns, d) into (B, windows, heads, window², d), padded with zeros."""
    rows, columns = x.shape[2:4]
    x = F.pad(x, (0, 0, 0, -columns % window, 0, -rows % window))
    x = x.unflatten(3, (-1, window)).unflatten(2, (-1, window))
    return x.permute(0, 2, 4, 1, 3, 5, 6).flatten(4, 5).flatten(1, 2)


def _join(x: Tensor, rows: int, columns: int, window: int) -> Tensor:
    """Undo `_cut`, without the padding: (B, heads, rows, columns, d)."""
    x = x.unflatten(3, (window, window)).unflatten(1, (-(-rows // window), -1))
    x = x.permute(0, 3, 1, 4, 2, 5, 6).flatten(4, 5).flatten(2, 3)
    return x[:, :, :rows, :columns]
