"""Squares of 4×4 outputs that cover a batch of maps, split into pieces that the caches hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 4  # outputs along a side
# Numbers of one window position that are transformed at a time, on one thread. Several threads
# share larger pieces: each operation has to wake them.
_BLOCK, _SHARED = 4096, 32


class Block(NamedTuple):
    """Some neighbouring tiles: where they are in the map, and where among the tiles of a chunk."""

    image: int
    top: int
    left: int
    down: int
    across: int
    tiles: slice

    @property
    def bottom(self) -> int:
        """Row below the last."""
        return self.top + TILE * self.down

    @property
    def right(self) -> int:
        """Column after the last."""
        return self.left + TILE * self.across


class Grid(NamedTuple):
    """Tiles that cover a batch of maps."""

    batch: int
    down: int
    across: int

    @classmethod
    def of(cls, x: Tensor) -> Grid:
        """Return the grid for maps (B, H, W, C)."""
        return cls(len(x), -(-x.shape[1] // TILE), -(-x.shape[2] // TILE))

    @property
    def tiles(self) -> int:
        """Number of all tiles."""
        return self.batch * self.down * self.across

    def places(self, rows: range) -> slice:
        """Return where the tiles of these rows are among all."""
        return slice(rows.start * self.across, rows.stop * self.across)

    def chunks(self, tiles: int) -> Iterator[range]:
        """Split the rows of tiles of all maps into ranges of about as many tiles per thread."""
        total = self.batch * self.down
        step = max(tiles * _pieces() // self.across, 1)
        for first in range(0, total, step):
            yield range(first, min(first + step, total))

    def blocks(self, rows: range, channels: int) -> Iterator[Block]:
        """Split rows of tiles into blocks that the caches hold, none of them in two maps."""
        most = max(_BLOCK * _pieces() // channels, 1)
        row = rows.start
        while row < rows.stop:
            image, top = divmod(row, self.down)
            down = max(min(most // self.across, rows.stop - row, self.down - top), 1)
            for left in range(0, self.across, most):
                across = min(most, self.across - left)
                start = (row - rows.start) * self.across + left
                tiles = slice(start, start + down * across)
                yield Block(image, TILE * top, TILE * left, down, across, tiles)
            row += down


def _pieces() -> int:
    """Return how much more than one thread's work is done at a time."""
    threads = torch.get_num_threads()
    return 1 if threads == 1 else _SHARED * threads
