"""Uniform attention as one of the heads of the MSA: (A), (B) and (C) of the paper's Table 1.

A uniform head needs no queries and no keys: every token receives the mean of that head's values.

- (A) replaces one head of the model. Its queries and keys go: ViT-S has 21.5 M parameters.
- (B) is (A) with as many parameters as the model had: the queries and keys of the heads that are
  left are wider. The paper does not say how it restores the count; this is our reading. 22.1 M.
- (C) has one more head. One more head of 64 channels beside the others gives 22.6 M, not the
  paper's 29 M. Widening the whole model by that head, from 6 to 7 heads of 64 channels, gives 29.2
  M. That is our reading.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.layers import trunc_normal_
from torch import Tensor, nn

from ...errors import UserError

#: option of ViTCB -> (extra heads, whether the number of parameters is restored)
UNIFORM_KINDS: dict[str, tuple[int, bool]] = {
    'uniform_a': (0, False),
    'uniform_b': (0, True),
    'uniform_c': (1, False),
}


class UniformHeadAttention(nn.Module):
    """Multi-head self-attention whose last head is uniform. Tokens (B, N, C) -> (B, N, C).

    Args:
        dim: Channels of the tokens.
        num_heads: Number of heads, including the uniform one.
        query_width: Channels of the queries and keys of a head; None is that of its values,
            ``dim / num_heads``.
        qkv_bias: Whether queries, keys and values have a bias.
        attn_drop: Dropout of the learned heads' attention.
        proj_drop: Dropout of the output.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        query_width: int | None = None,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.query_width = query_width or self.head_dim
        self.attn_drop = nn.Dropout(attn_drop)
        learned = num_heads - 1
        self.qkv = nn.Linear(dim, 2 * learned * self.query_width + dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)
        for layer in (self.qkv, self.proj):  # as timm's ViT does
            trunc_normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys of the learned heads, values of all: (B, heads, N, channels)."""
        queries = (self.num_heads - 1) * self.query_width
        parts = self.qkv(x).split([queries, queries, self.proj.in_features], dim=-1)
        widths = (self.query_width, self.query_width, self.head_dim)
        return tuple(
            part.unflatten(-1, (-1, width)).transpose(1, 2)
            for part, width in zip(parts, widths, strict=True)
        )

    def forward(  # noqa: D102
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if attn_mask is not None or is_causal:
            raise UserError('attention with a uniform head takes no mask.')
        q, k, v = self._heads(x)
        # The fused kernels want values as wide as the queries.
        wide = F.pad(v[:, :-1], (0, self.query_width - self.head_dim))
        dropout = self.attn_drop.p if self.training else 0.0
        learned = F.scaled_dot_product_attention(q, k, wide, dropout_p=dropout)
        learned = learned[..., : self.head_dim]
        mean = v[:, -1:].mean(dim=2, keepdim=True, dtype=torch.promote_types(v.dtype, torch.float))
        uniform = mean.to(v.dtype).expand(-1, -1, x.shape[1], -1)
        mixed = torch.cat([learned, uniform], dim=1).transpose(1, 2).flatten(2)
        return self.proj_drop(self.proj(mixed))

    def attention_parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return scaled queries, keys and values of all heads, and no bias, for `cb_mm.attention`.

        Queries of zero attend to all tokens alike.
        """
        q, k, v = self._heads(x)
        q, k = (F.pad(part, (0, 0, 0, 0, 0, 1)) for part in (q * self.query_width**-0.5, k))
        return q, k, v, None

    def finish(self, mixed: Tensor, x: Tensor) -> Tensor:
        """Return the output (B, n, C) from mixed values of all heads (B, n, C) and the input."""
        return self.proj(mixed)
