"""LocalViT: a ViT whose feed-forward has a depthwise convolution. timm has none.

Li et al., "LocalViT: Bringing Locality to Vision Transformers", 2021. The tiny size of that paper:
DeiT-Ti with 4 heads; in every block the MLP is 1 × 1 convolution, 3 × 3 depthwise convolution,
squeeze-and-excitation, 1 × 1 convolution, each convolution with batch norm, and the class token
bypasses it. Importing this file registers ``localvit_tiny_patch16_224`` with timm.
"""

from __future__ import annotations

from typing import Any

import torch
from timm.layers import Attention, DropPath, SqueezeExcite
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..attention.token_grid import TokenGrid

__all__ = ['LocalViT', 'localvit_tiny_patch16_224']

#: As the authors' tiny model: 4 hidden channels in the squeeze-and-excitation, for 768 channels.
_REDUCTION = 192


class LocalFeedForward(nn.Module):
    """Tokens (B, h·w, C) of a grid -> the same, by convolutions.

    Args:
        width: Channels of the tokens.
        hidden: Channels between the two 1 × 1 convolutions.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, hidden, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.norm2 = nn.BatchNorm2d(hidden)
        self.act = nn.Hardswish()
        self.se = SqueezeExcite(
            hidden, rd_channels=max(hidden // _REDUCTION, 1), gate_layer=nn.Hardsigmoid
        )
        self.fc2 = nn.Conv2d(hidden, width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        batch, _, width = x.shape
        x = x.transpose(1, 2).reshape(batch, width, *grid)
        x = self.act(self.norm1(self.fc1(x)))
        x = self.act(self.norm2(self.depthwise(x)))
        x = self.norm3(self.fc2(self.se(x)))
        return x.flatten(2).transpose(1, 2)


class LocalBlock(nn.Module):
    """A block of timm's ViT with `LocalFeedForward` as its MLP.

    The arguments are those that timm's VisionTransformer gives to its blocks.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.0,
        norm_layer: type[nn.Module] = nn.LayerNorm,
        **_: Any,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = Attention(
            dim, num_heads, qkv_bias=qkv_bias, attn_drop=attn_drop, proj_drop=proj_drop
        )
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.mlp = LocalFeedForward(dim, int(dim * mlp_ratio))
        self.grid: TokenGrid | None = None

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        assert self.grid is not None  # set when the model is built
        grid = self.grid.of(x.shape[1])
        prefix, cells = x[:, : self.grid.prefix], x[:, self.grid.prefix :]
        # No norm, no drop path and no class token here, as in the authors' model.
        return torch.cat([prefix, cells + self.mlp(cells, grid)], dim=1)


class LocalViT(VisionTransformer):
    """timm's VisionTransformer with `LocalBlock`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, 'block_fn': LocalBlock})
        grid = TokenGrid(self.patch_embed, self.num_prefix_tokens)
        for block in self.blocks:
            block.grid = grid


default_cfgs = generate_default_cfgs(
    {
        'localvit_tiny_patch16_224.untrained': {
            'url': '',
            'num_classes': 1000,
            'input_size': (3, 224, 224),
            'mean': (0.485, 0.456, 0.406),
            'std': (0.229, 0.224, 0.225),
            'first_conv': 'patch_embed.proj',
            'classifier': 'head',
        }
    }
)


@register_model
def localvit_tiny_patch16_224(pretrained: bool = False, **kwargs: Any) -> LocalViT:
    """Build LocalViT-Ti: 12 blocks, 192 channels, 4 heads."""
    size = {'patch_size': 16, 'embed_dim': 192, 'depth': 12, 'num_heads': 4}
    return build_model_with_cfg(
        LocalViT,
        'localvit_tiny_patch16_224',
        pretrained,
        feature_cfg={'out_indices': 3, 'feature_cls': 'getter'},
        **{**size, **kwargs},
    )
