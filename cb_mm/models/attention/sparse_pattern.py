"""Sparse attention patterns of BigBird on the patches of an image: random, window, global.

The patches are cut into blocks. All queries of a block attend to the same keys:

- window (W): the blocks around theirs, including their own,
- random (R): some other blocks, drawn once for a grid and a layer,
- global (G): tokens that see all tokens and are seen by all: single patches, the first and the last
  block, or added tokens.

Prefix tokens (class, distillation, registers) are always global: our reading, since a class token
that sees three blocks could not describe the image. ``prefix_in_blocks`` makes them tokens like all
others. With ``block=1`` the pattern is over single tokens: r random keys for every query, w
neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import UserError
from ..broadcast.context_broadcast import check_choice

#: Names of the combinations of the sparse-attention paper.
COMBINATIONS = ('R', 'W', 'G', 'R+W', 'W+G', 'R+G', 'R+W+G')


@dataclass(frozen=True)
class SparsePattern:
    """Which keys a query attends to; see the top of this file.

    Attributes:
        random: Random blocks for each block of queries.
        window: Blocks across the window, odd: on a grid window × window of them. 0: none.
        global_tokens: Patches that are global, spread evenly; prefix tokens come on top.
        block: Side of a block: block × block patches on a grid, block patches in a sequence.
        layout: 'grid' cuts the image into square blocks; 'sequence' cuts the patches, row by row,
            into runs, as BigBird does with text.
        seed: Of the random blocks.
        global_ends: The first and the last block of a sequence are global, as in BigBird.
        added_tokens: Learned tokens before the patches, which are global.
        prefix_in_blocks: The class token is the first of a sequence's first run, and global only
            if that is.
        per_head: Every head has its own random blocks.
        redraw: Draw new random blocks in every forward pass of training, with torch's
            generator. Evaluation has those of the seed.
        projection: Whether the attention ends with its linear layer and dropout.
        queries: Blocks of a sequence whose queries get a result: R the first, W those between, G
            the last. All others get zero.
    """

    random: int = 3
    window: int = 3
    global_tokens: int = 16
    block: int = 4
    layout: str = 'grid'
    seed: int = 0
    global_ends: bool = False
    added_tokens: int = 0
    prefix_in_blocks: bool = False
    per_head: bool = False
    redraw: bool = False
    projection: bool = True
    queries: str = 'R+W+G'

    def __post_init__(self) -> None:
        check_choice('attention layout', self.layout, ('grid', 'sequence'))
        check_choice('attention queries', self.queries, COMBINATIONS)
        for field in fields(self):
            value, least = getattr(self, field.name), int(field.name == 'block')
            if isinstance(field.default, bool):
                if type(value) is not bool:
                    raise UserError(f'attention {field.name}={value!r} is not True or False.')
            elif isinstance(field.default, int) and (type(value) is not int or value < least):
                raise UserError(f'attention {field.name}={value!r} is not a number >= {least}.')
        if self.window and self.window % 2 == 0:
            raise UserError(f'attention window={self.window} is not odd: it has a middle block.')
        somewhere = self.random or self.window or self.global_tokens or self.added_tokens
        if not (somewhere or self.global_ends):
            raise UserError('attention: random, window and global_tokens are all 0.')
        of_sequences = self.global_ends or self.prefix_in_blocks or self.queries != 'R+W+G'
        if of_sequences and self.layout != 'sequence':
            raise UserError(
                "attention: global_ends, prefix_in_blocks and queries are for layout='sequence'."
            )
        if self.prefix_in_blocks and self.added_tokens:
            raise UserError('attention: added_tokens are global: leave out prefix_in_blocks.')

    @classmethod
    def read(cls, option: str | Mapping) -> SparsePattern:
        """Read one of `COMBINATIONS`, or a dict of the attributes above."""
        if isinstance(option, str):
            check_choice('attention', option, COMBINATIONS)
            parts = option.split('+')
            names = {'R': 'random', 'W': 'window', 'G': 'global_tokens'}
            left_out: dict[str, Any] = {n: 0 for letter, n in names.items() if letter not in parts}
            return cls(**left_out)
        for key in option:
            check_choice('attention option', key, [field.name for field in fields(cls)])
        return cls(**option)


@dataclass(frozen=True)
class SparsePlan:
    """A pattern on one grid, as indices of tokens, prefix tokens first.

    Attributes:
        queries: (blocks, t): the tokens of each block; ``tokens`` where there is none, or where it
            is global.
        keys: (blocks, K): the tokens that a block attends to; 0 where there is none.
        bias: (blocks, 1, K): 0 for a key, minus infinity where there is none.
        global_tokens: (G,).
        tokens: Number of tokens.
        silent: (S,): the tokens whose queries get no result.
    """

    queries: Tensor
    keys: Tensor
    bias: Tensor
    global_tokens: Tensor
    tokens: int
    silent: Tensor

    def to(self, device: torch.device) -> SparsePlan:
        """Return the same plan on a device."""
        return SparsePlan(
            self.queries.to(device),
            self.keys.to(device),
            self.bias.to(device),
            self.global_tokens.to(device),
            self.tokens,
            self.silent.to(device),
        )

    @cached_property
    def pairs(self) -> int:
        """Number of pairs of query and key."""
        keys = (self.bias[:, 0] == 0).sum(-1)
        queries = (self.queries < self.tokens).sum(-1)
        return int((keys * queries).sum()) + len(self.global_tokens) * self.tokens

    def mask(self) -> Tensor:
        """Return the pattern as a dense matrix (tokens, tokens): True where a query sees a key."""
        mask = torch.zeros(self.tokens + 1, self.tokens, dtype=torch.bool, device=self.keys.device)
        for queries, keys, bias in zip(self.queries, self.keys, self.bias[:, 0], strict=True):
            mask[queries[:, None], keys[bias == 0]] = True
        mask[self.global_tokens] = True
        return mask[: self.tokens]


def make_plan(
    pattern: SparsePattern,
    grid: tuple[int, int],
    prefix: int = 0,
    layer: int = 0,
    draw: Sequence[int] = (),
) -> SparsePlan:
    """Lay a pattern on a grid of patches behind ``prefix`` tokens.

    Time and memory grow linearly with the number of patches. The random blocks depend on the seed,
    the grid, the layer and ``draw`` (the head and the like) alone.
    """
    tokens = prefix + grid[0] * grid[1]
    members, shape = _blocks(pattern, grid, prefix)
    ends = np.array([0, len(members) - 1] if pattern.global_ends else [], np.int64)
    everywhere = np.concatenate(
        [
            np.arange(0 if pattern.prefix_in_blocks else prefix),
            prefix + _spread(pattern.global_tokens, grid),
            members[ends].ravel(),
        ]
    )
    if pattern.global_ends:
        everywhere = np.unique(everywhere[everywhere >= 0])

    near = _window(pattern.window, shape)
    rng = np.random.default_rng([pattern.seed, layer, *grid, *draw])
    taken = np.concatenate([near, np.broadcast_to(ends, (len(members), len(ends)))], axis=1)
    far = _random(pattern.random, taken, len(members), rng)
    blocks = np.concatenate([near, far], axis=1)
    # Tokens of those blocks, -1 where a block or a token is missing.
    keys = np.where(blocks[..., None] < 0, -1, members[blocks]).reshape(len(members), -1)
    is_global = np.zeros(tokens + 1, bool)
    is_global[everywhere] = True

    def in_blocks(numbers: np.ndarray) -> np.ndarray:
        # A global token is in no block, neither as key (it would count twice) nor as query.
        numbers = np.where(numbers < 0, tokens, numbers)
        return np.where(is_global[numbers], tokens, numbers)

    keys = _left(in_blocks(keys), tokens)
    common = np.broadcast_to(everywhere, (len(members), len(everywhere)))
    keys = np.concatenate([common, keys], axis=1)
    if keys.shape[1] == 0 or (keys == tokens).all(axis=1).any():
        raise UserError(f'attention {pattern}: some patches of a {grid} grid have no key at all.')
    bias = np.where(keys == tokens, -np.inf, 0).astype(np.float32)
    return SparsePlan(
        queries=torch.from_numpy(in_blocks(members)),
        keys=torch.from_numpy(np.where(keys == tokens, 0, keys)),
        bias=torch.from_numpy(bias)[:, None],
        global_tokens=torch.from_numpy(everywhere),
        tokens=tokens,
        silent=torch.from_numpy(_silent(pattern.queries, members)),
    )


def _silent(queries: str, members: np.ndarray) -> np.ndarray:
    """Return the tokens of the blocks that ``queries`` leaves out."""
    parts = queries.split('+')
    cut = {'R': members[:1], 'W': members[1:-1], 'G': members[1:][-1:]}
    out = [block.ravel() for part, block in cut.items() if part not in parts]
    found = np.concatenate([np.zeros(0, np.int64), *out])
    return found[found >= 0]


def _blocks(
    pattern: SparsePattern, grid: tuple[int, int], prefix: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the tokens of every block (blocks, t), -1 for none, and the grid of the blocks."""
    side = pattern.block
    patches = prefix + np.arange(grid[0] * grid[1])
    if pattern.layout == 'sequence':
        if pattern.prefix_in_blocks:
            patches = np.arange(prefix + patches.size)
        count = -(-patches.size // side)
        padded = np.pad(patches, (0, count * side - patches.size), constant_values=-1)
        return padded.reshape(count, side), (1, count)
    rows, columns = (-(-size // side) for size in grid)
    margins = ((0, rows * side - grid[0]), (0, columns * side - grid[1]))
    padded = np.pad(patches.reshape(grid), margins, constant_values=-1)
    tiles = padded.reshape(rows, side, columns, side).swapaxes(1, 2)
    return tiles.reshape(rows * columns, side * side), (rows, columns)


def _spread(count: int, grid: tuple[int, int]) -> np.ndarray:
    """Return the numbers of ``count`` patches (or all), evenly spaced in evenly spaced rows."""
    height, width = grid
    count = min(count, height * width)
    if count == 0:
        return np.zeros(0, np.int64)
    rows = round((count * height / width) ** 0.5)
    rows = min(max(rows, -(-count // width)), height, count)
    ends = np.arange(rows + 1) * count // rows
    patches = [
        (2 * i + 1) * height // (2 * rows) * width + (2 * np.arange(many) + 1) * width // (2 * many)
        for i, many in enumerate(np.diff(ends))
    ]
    return np.concatenate(patches)


def _window(window: int, shape: tuple[int, int]) -> np.ndarray:
    """Return the blocks around every block (blocks, window²), -1 beyond the border."""
    reach = np.arange(window) - window // 2
    down, right = (offset.ravel() for offset in np.meshgrid(reach, reach, indexing='ij'))
    if shape[0] == 1:  # a sequence, or a flat grid: nothing above and below
        down, right = 0 * reach, reach
    row, column = (index.reshape(-1, 1) for index in np.indices(shape))
    row, column = row + down, column + right
    inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
    return np.where(inside, row * shape[1] + column, -1)


def _random(count: int, taken: np.ndarray, blocks: int, rng: np.random.Generator) -> np.ndarray:
    """Draw ``count`` more blocks for every block (blocks, count); -1 when none is left.

    Drawn one after the other among those that are left, without a table of all pairs of blocks.
    """
    chosen = np.full((len(taken), count), -1)
    for i in range(count):
        used = np.concatenate([taken, chosen[:, :i]], axis=1)
        used = np.sort(np.where(used < 0, blocks, used), axis=1)
        left = blocks - (used < blocks).sum(axis=1)
        number = (rng.random(len(taken)) * left).astype(np.int64)
        for column in used.T:  # step over the blocks that are used, in their order
            number += number >= column
        chosen[:, i] = np.where(left > 0, number, -1)
    return chosen


def _left(keys: np.ndarray, none: int) -> np.ndarray:
    """Move the keys of each row to the front; drop columns without any key."""
    order = np.argsort(keys == none, axis=1, kind='stable')
    width = int((keys != none).sum(axis=1).max(initial=0))
    return np.take_along_axis(keys, order, axis=1)[:, :width]
