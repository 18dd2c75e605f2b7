"""The token grid of a forward pass, for layers that must know which tokens are neighbours."""

from __future__ import annotations

from typing import Any

import torch
from timm.layers import Attention
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


class GridAttention(Attention):
    """timm's attention, with its parameters and keys, for a subclass that knows the grid.

    Args:
        attention: The dense attention that this one replaces.
        grid: Gives the grid of a forward pass.
        what: Name of the kind, for messages.
    """

    def __init__(self, attention: Attention, grid: TokenGrid, what: str) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(attention))
        if attention.attn_drop.p > 0:
            raise UserError(f'attn_drop_rate does not work with {what} attention: set it to 0.')
        self.grid = grid
        self._what = what

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return softmax(q kᵀ) v over the pairs of this kind, (B, heads, N, d); q is scaled."""
        raise NotImplementedError

    def mask(self, tokens: int, device: torch.device) -> Tensor:
        """Return which keys (columns) each query (row) attends to, bool (N, N)."""
        raise NotImplementedError

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q) * self.scale, self.k_norm(k)
        return q.to(v.dtype), k.to(v.dtype), v

    def forward(  # noqa: D102
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if attn_mask is not None or is_causal:
            raise UserError(f'{self._what} attention takes no further mask.')
        mixed = self.mix(*self._heads(x))
        return self.proj_drop(self.finish(mixed.transpose(1, 2).flatten(2), x))

    def attention_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return scaled queries, keys, values and the pairs as a bias, for `cb_mm.attention`."""
        mask = self.mask(x.shape[1], x.device)
        bias = torch.zeros(mask.shape, device=x.device).masked_fill_(~mask, float('-inf'))
        return *self._heads(x), bias

    def finish(self, mixed: Tensor, x: Tensor) -> Tensor:
        """Return the output (B, n, C) from mixed values of all heads (B, n, C) and the input."""
        norm, gate = getattr(self, 'norm', None), getattr(self, 'gate', None)
        mixed = mixed if norm is None else norm(mixed)
        return self.proj(mixed if gate is None else mixed * gate(x).sigmoid())
