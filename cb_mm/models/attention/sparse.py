"""Attention over the pairs of a sparse pattern only: other pairs are not computed.

Keys and values of a few blocks of queries at a time are gathered and multiplied, so that time and
memory grow linearly with the number of tokens. In the backward pass they are gathered again
instead of being kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from timm.layers import Attention
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .sparse_pattern import SparsePattern, SparsePlan, make_plan
from .token_grid import GridAttention, TokenGrid

#: Bytes of gathered keys and values at a time: on a CPU, what fits in the cache is fastest.
_CPU_CHUNK, _GPU_CHUNK = 4 * 2**20, 128 * 2**20
#: Plans that a layer keeps, one per grid: test images come in many sizes.
_KEPT_PLANS = 16


def sparse_attention(q: Tensor, k: Tensor, v: Tensor, plan: SparsePlan) -> Tensor:
    """Compute softmax(q kᵀ) v over the pairs of ``plan``.

    Args:
        q: (B, heads, N, d), scaled.
        k: (B, heads, N, d).
        v: (B, heads, N, d).
        plan: For N tokens, on the same device.

    Returns:
        (B, heads, N, d).
    """
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        return _SparseAttention.apply(q, k, v, plan)
    return _forward(q, k, v, plan)


def _pieces(q: Tensor, plan: SparsePlan) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield a few blocks at a time: queries (n, t), keys (n, K) and bias (n, 1, K)."""
    batch, heads, _, channels = q.shape
    blocks, count = plan.keys.shape
    row = batch * heads * q.element_size() * count * (2 * channels + plan.queries.shape[1])
    step = max((_CPU_CHUNK if q.device.type == 'cpu' else _GPU_CHUNK) // max(row, 1), 1)
    for start in range(0, blocks, step):
        piece = slice(start, start + step)
        yield plan.queries[piece], plan.keys[piece], plan.bias[piece]


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Gather tokens (B, heads, N, d) at (n, m): (B, heads, n, m, d)."""
    return x.index_select(2, index.flatten()).unflatten(2, index.shape)


def _wide(x: Tensor) -> torch.dtype:
    """Convert to float32 or wider: half precision is too coarse for sums over many keys."""
    return torch.promote_types(x.dtype, torch.float32)


def _probabilities(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    logits = (q @ k.transpose(-2, -1)).to(_wide(q))
    return (logits if bias is None else logits.add_(bias)).softmax(dim=-1).to(q.dtype)


def _forward(q: Tensor, k: Tensor, v: Tensor, plan: SparsePlan) -> Tensor:
    # One extra row of zeros: reads and writes of missing tokens go there.
    q = nn.functional.pad(q, (0, 0, 0, 1))
    out = v.new_empty(*v.shape[:2], plan.tokens + 1, v.shape[3])
    for queries, keys, bias in _pieces(q, plan):
        p = _probabilities(_gather(q, queries), _gather(k, keys), bias)
        out.index_copy_(2, queries.flatten(), (p @ _gather(v, keys)).flatten(2, 3))
    everywhere = plan.global_tokens
    if len(everywhere):
        p = _probabilities(q.index_select(2, everywhere), k, None)
        out.index_copy_(2, everywhere, p @ v)
    return out[:, :, : plan.tokens]


def _backward(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, plan: SparsePlan
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k and v; every piece is recomputed."""
    q, grad = (nn.functional.pad(x, (0, 0, 0, 1)) for x in (q, grad))
    wide = _wide(q)
    dq = torch.zeros_like(q, dtype=wide)
    dk, dv = torch.zeros_like(k, dtype=wide), torch.zeros_like(v, dtype=wide)

    def add(rows: Tensor, keys: Tensor | None, bias: Tensor | None) -> None:
        qs, gs = _gather(q, rows), _gather(grad, rows)
        ks, vs = (x[:, :, None] if keys is None else _gather(x, keys) for x in (k, v))
        p = _probabilities(qs, ks, bias)
        dp = (gs @ vs.transpose(-2, -1)).to(wide) * p
        dlogits = (dp - p * dp.sum(-1, keepdim=True)).to(q.dtype)
        dq.index_copy_(2, rows.flatten(), (dlogits @ ks).flatten(2, 3).to(wide))
        for total, part in ((dk, dlogits.transpose(-2, -1) @ qs), (dv, p.transpose(-2, -1) @ gs)):
            part = part.flatten(2, 3).to(wide)
            if keys is None:
                total.add_(part)
            else:
                total.index_add_(2, keys.flatten(), part)

    for queries, keys, bias in _pieces(q, plan):
        add(queries, keys, bias)
    if len(plan.global_tokens):
        add(plan.global_tokens[None], None, None)
    return dq[:, :, : plan.tokens].to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: SparsePlan) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.plan = plan
        return _forward(q, k, v, plan)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        return *_backward(q, k, v, grad, ctx.plan), None


class SparseAttention(GridAttention):
    """Attention over a sparse pattern.

    Args:
        attention: The dense attention that this one replaces.
        pattern: Which pairs are computed.
        grid: Gives the grid of a forward pass.
        layer: Number of the block: each has its own random blocks.
    """

    def __init__(
        self, attention: Attention, pattern: SparsePattern, grid: TokenGrid, layer: int = 0
    ) -> None:
        super().__init__(attention, grid, 'sparse')
        self.pattern = pattern
        self.layer = layer
        self._plans: dict[tuple, list[SparsePlan]] = {}
        if not pattern.projection:
            self.proj, self.proj_drop = nn.Identity(), nn.Identity()

    def plans(self, tokens: int, device: torch.device) -> list[SparsePlan]:
        """Return the pattern on the grid of this forward pass: one for all heads, or one each."""
        size = self.grid.of(tokens)
        if self.pattern.redraw and self.training:
            # From torch's generator, which is seeded for every iteration: resuming repeats it.
            return self._draw(size, device, int(torch.randint(2**62, ())))
        key = (size, self.grid.prefix, device)
        if key not in self._plans:
            if len(self._plans) >= _KEPT_PLANS:
                self._plans.clear()
            self._plans[key] = self._draw(size, device)
        return self._plans[key]

    def _draw(self, size: tuple[int, int], device: torch.device, *draw: int) -> list[SparsePlan]:
        heads = [(i,) for i in range(self.num_heads)] if self.pattern.per_head else [()]
        return [
            make_plan(self.pattern, size, self.grid.prefix, self.layer, (*head, *draw)).to(device)
            for head in heads
        ]

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # noqa: D102
        plans = self.plans(q.shape[2], q.device)
        if len(plans) == 1:
            mixed = sparse_attention(q, k, v, plans[0])
        else:
            parts = (x.split(1, dim=1) for x in (q, k, v))
            heads = zip(*parts, plans, strict=True)
            mixed = torch.cat([sparse_attention(*head) for head in heads], dim=1)
        silent = plans[0].silent  # the same for all heads
        return mixed.index_fill(2, silent, 0) if len(silent) else mixed

    def mask(self, tokens: int, device: torch.device) -> Tensor:
        """Return which keys each query attends to, bool (N, N), or (heads, N, N)."""
        masks = [plan.mask() for plan in self.plans(tokens, device)]
        return masks[0] if len(masks) == 1 else torch.stack(masks)
