"""Which tokens a sequence holds: prefix tokens (class, distillation, registers), then a grid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

#: Names under which models keep the module that turns an image into patches.
_PATCHES = ('patch_embed', 'conv_proj', 'patch_embedding', 'patch_embeddings')


@dataclass(frozen=True)
class Tokens:
    """Meaning of the tokens of one sequence.

    Attributes:
        prefix: Names of the tokens before the grid: 'cls', 'dist', 'reg0', ...
        grid: Rows and columns of the spatial tokens, which follow row by row.
        image: Height and width in pixels of the image that the model saw.
        patch: Height and width in pixels of a cell. The grid may extend beyond the image at the
            right and the bottom, where the model padded it.
    """

    prefix: tuple[str, ...]
    grid: tuple[int, int]
    image: tuple[int, int]
    patch: tuple[int, int]

    @property
    def count(self) -> int:
        """Number of all tokens."""
        return len(self.prefix) + self.grid[0] * self.grid[1]

    @property
    def class_token(self) -> int | None:
        """Place of the class token, or None."""
        return self.prefix.index('cls') if 'cls' in self.prefix else None

    def at_pixel(self, x: float, y: float) -> int:
        """Return the token whose patch holds the pixel (x, y) of the image that the model saw."""
        height, width = self.image
        if not (0 <= x < width and 0 <= y < height):
            raise UserError(
                f'query {x:g},{y:g} is outside the image: x goes from 0 to {width - 1}, y from 0 '
                f'to {height - 1}.'
            )
        row = min(int(y // self.patch[0]), self.grid[0] - 1)
        column = min(int(x // self.patch[1]), self.grid[1] - 1)
        return len(self.prefix) + row * self.grid[1] + column

    def cell(self, token: int) -> tuple[int, int]:
        """Return the row and column of a spatial token."""
        return divmod(token - len(self.prefix), self.grid[1])

    def centre(self, token: int) -> tuple[float, float]:
        """Return the pixel (x, y) in the middle of a spatial token's patch."""
        row, column = self.cell(token)
        return (column + 0.5) * self.patch[1], (row + 0.5) * self.patch[0]


@dataclass
class _Seen:
    """The last output of a model's patch embedding."""

    grid: tuple[int, int]
    image: tuple[int, int]


@dataclass
class TokenWatcher:
    """The grid of every forward pass, learned by watching the patch embeddings.

    Args:
        prefix_tokens: Number of tokens before the grid, for models that do not record it.
        grid: Rows and columns, for models without a patch embedding of a known name.
    """

    prefix_tokens: int | None = None
    grid: tuple[int, int] | None = None
    _seen: dict[nn.Module, _Seen] = field(default_factory=dict)

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Watch the patch embeddings of ``model`` while the context is open."""
        handles = []
        try:
            for module in model.modules():
                patches = patch_module(module)
                if patches is not None:
                    handles.append(patches.register_forward_hook(self._look))
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._seen.clear()

    def _look(self, patches: nn.Module, args: tuple, output: Any) -> None:
        if not (args and isinstance(args[0], Tensor) and args[0].ndim == 4):
            return
        image = (args[0].shape[2], args[0].shape[3])
        grid = _grid_of(patches, image, output)
        if grid is not None:
            self._seen[patches] = _Seen(grid, image)

    def tokens(self, owners: list[nn.Module], name: str, count: int) -> Tokens:
        """Return what the ``count`` tokens of a layer are.

        Args:
            owners: The modules that hold the layer, the innermost last.
            name: Name of the layer, for messages.
            count: Number of tokens that it attends over.
        """
        owner, seen = self._owner(owners)
        grid = self.grid or (seen.grid if seen else None)
        if grid is None:
            raise UserError(
                f'{name}: the grid of its {count} tokens is not known, since the model has no '
                f'{" or ".join(_PATCHES[:2])}. Give grid=(rows, columns) and prefix_tokens=....'
            )
        cells = grid[0] * grid[1]
        prefix = self.prefix_tokens
        if prefix is None:
            prefix = getattr(owner, 'num_prefix_tokens', count - cells)
        if prefix < 0 or prefix + cells != count:
            raise UserError(
                f'{name} attends over {count} tokens, which are not {max(prefix, 0)} prefix tokens '
                f'and a grid of {grid[0]} × {grid[1]}. Attention in windows, over pooled tokens or '
                'with dropped patches cannot be shown on the image.'
            )
        image = seen.image if seen else (grid[0], grid[1])
        patch = (-(-image[0] // grid[0]), -(-image[1] // grid[1]))
        own = getattr(patch_module(owner), 'patch_size', None) if owner is not None else None
        if isinstance(own, (tuple, list)) and not self.grid:
            patch = (int(own[0]), int(own[1]))
        return Tokens(_prefix_names(owner, prefix), grid, image, patch)

    def _owner(self, owners: list[nn.Module]) -> tuple[nn.Module | None, _Seen | None]:
        for owner in reversed(owners):
            seen = self._seen.get(patch_module(owner))
            if seen is not None:
                return owner, seen
        return None, None


def patch_module(owner: nn.Module) -> nn.Module | None:
    """Return the part of a model that turns an image into patches, where it has one."""
    for name in _PATCHES:
        part = getattr(owner, name, None)
        if isinstance(part, nn.Module):
            return part
    return None


def _grid_of(patches: nn.Module, image: tuple[int, int], output: Any) -> tuple[int, int] | None:
    if isinstance(output, tuple) and len(output) == 2:  # mmseg: tokens and their grid
        rows, columns = output[1]
        return int(rows), int(columns)
    if isinstance(output, Tensor) and output.ndim == 4:
        channels_last = getattr(getattr(patches, 'output_fmt', None), 'value', '') == 'NHWC'
        rows, columns = output.shape[1:3] if channels_last else output.shape[2:]
        return rows, columns
    if hasattr(patches, 'dynamic_feat_size'):
        return tuple(patches.dynamic_feat_size(image))
    return tuple(patches.grid_size) if getattr(patches, 'grid_size', None) else None


def _prefix_names(owner: nn.Module | None, count: int) -> tuple[str, ...]:
    """Return the names of the prefix tokens, in timm's order: class, distillation, registers."""
    tokens = {
        'cls': ('cls_token', 'class_token'),
        'dist': ('dist_token',),
    }
    names = [
        name
        for name, attributes in tokens.items()
        if any(isinstance(getattr(owner, key, None), torch.Tensor) for key in attributes)
    ]
    if owner is None and count:
        names = ['cls']
    names = names[:count]
    return (*names, *(f'reg{i}' for i in range(count - len(names))))
