"""The token grid of a forward pass, for layers that must know which tokens are neighbours."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...errors import UserError


class TokenGrid:
    """Rows and columns of the patches, as the patch embedding of a ViT last gave them.

    Layers hold it; it holds no layer. A copy of a model gets its own grid, shared by its layers. It
    remembers the last grid for every number of tokens: layers that are recomputed in the backward
    pass may be those of an earlier image.

    Args:
        patch_embed: timm's patch embedding.
        prefix: Number of tokens before the patches: class, distillation, registers.
    """

    def __init__(self, patch_embed: nn.Module, prefix: int) -> None:
        self.prefix = prefix
        self._sizes: dict[int, tuple[int, int]] = {}
        self._fixed: Any = getattr(patch_embed, 'grid_size', None)
        patch_embed.register_forward_hook(self._look)

    def _look(self, patch_embed: nn.Module, args: tuple, output: Tensor) -> None:
        # (B, h, w, C) for images of any size, (B, N, C) for those of one size
        rows, columns = output.shape[1:3] if output.ndim == 4 else self._fixed
        self._sizes[self.prefix + rows * columns] = (rows, columns)

    def of(self, tokens: int) -> tuple[int, int]:
        """Return rows and columns of a sequence of that many tokens, including the prefix."""
        if tokens not in self._sizes:
            raise UserError(
                f'{tokens} tokens are not {self.prefix} prefix tokens and the patches of an image. '
                'Patch dropout and the like do not work with layers on a grid.'
            )
        return self._sizes[tokens]
