"""One more layer behind the last block of a ViT, as in the paper's Figure 3."""

from __future__ import annotations

from timm.layers import Attention, DropPath, Mlp
from timm.models.vision_transformer import VisionTransformer, init_weights_vit_timm
from torch import Tensor, nn

from ..broadcast.context_broadcast import check_choice


class ExtraLayer(nn.Module):
    """A norm, and an attention or an MLP alone, with a residual sum. Tokens (B, N, C) -> (B, N, C).

    The paper says that both add nearly the same parameters. With an MLP of ratio 4 they would not:
    it has 8 C² weights, and the attention 4 C². So the MLP has ratio 2 here: our reading.

    Args:
        kind: 'attn' or 'mlp'.
        width: Channels of the tokens.
        num_heads: Of the attention.
        qkv_bias: Whether queries, keys and values have a bias.
        drop_path: As in the last block.
    """

    def __init__(
        self, kind: str, width: int, num_heads: int, qkv_bias: bool = True, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        check_choice('extra_layer', kind, ('attn', 'mlp'))
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.kind = kind
        if kind == 'attn':
            self.attn = Attention(width, num_heads, qkv_bias=qkv_bias)
        else:
            self.mlp = Mlp(width, 2 * width)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.apply(init_weights_vit_timm)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        layer = self.attn if self.kind == 'attn' else self.mlp
        return x + self.drop_path(layer(self.norm1(x)))


def add_extra_layer(vit: VisionTransformer, kind: str | None) -> None:
    """Put an `ExtraLayer` behind the last block; None: nothing."""
    if kind is None:
        return
    last = vit.blocks[-1]
    heads, bias = last.attn.num_heads, last.attn.qkv.bias is not None
    rate = float(getattr(last.drop_path1, 'drop_prob', None) or 0)
    vit.blocks.append(ExtraLayer(kind, vit.embed_dim, heads, bias, rate))
