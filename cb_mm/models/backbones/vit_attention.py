"""A timm ViT with another attention than timm's: with a uniform head, or over a sparse pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer

from ...errors import UserError
from ..attention.sparse import SparseAttention
from ..attention.sparse_pattern import COMBINATIONS, SparsePattern
from ..attention.token_grid import TokenGrid
from ..attention.uniform import UNIFORM_KINDS, UniformHeadAttention
from ..broadcast.context_broadcast import check_choice
from .vit_arch import build_timm_vit


def build_vit(
    arch: str | Mapping[str, Any],
    img_size: int | Sequence[int] | None,
    drop_path_rate: float,
    attention: str | Mapping[str, Any] | None = None,
) -> VisionTransformer:
    """Build the ViT of `build_timm_vit` with the requested attention.

    Args:
        arch: As in `build_timm_vit`.
        img_size: As in `build_timm_vit`.
        drop_path_rate: As in `build_timm_vit`.
        attention: None is timm's. 'uniform_a', 'uniform_b' and 'uniform_c' have one uniform head
            (see `uniform_attention`); 'R', 'W', 'G' and their sums, or a dict of `SparsePattern`'s
            attributes, are sparse.
    """
    vit = build_timm_vit(arch, img_size, drop_path_rate)
    if attention is None:
        return vit
    kind = attention if isinstance(attention, str) else 'R+W+G'
    check_choice('attention', kind, (*UNIFORM_KINDS, *COMBINATIONS))
    other = next((block for block in vit.blocks if type(block.attn) is not Attention), None)
    if other is not None:
        raise UserError(
            f'attention={attention!r} replaces a plain attention; the blocks of '
            f'arch={arch!r} have {type(other.attn).__name__}.'
        )
    if kind in UNIFORM_KINDS:
        more, restore = UNIFORM_KINDS[kind]
        if more:
            first = vit.blocks[0].attn
            heads = first.num_heads + more
            width = heads * (vit.embed_dim // first.num_heads)
            vit = build_timm_vit(arch, img_size, drop_path_rate, embed_dim=width, num_heads=heads)
        _make_uniform(vit, restore)
        return vit
    pattern = SparsePattern.read(attention)
    grid = TokenGrid(vit.patch_embed, vit.num_prefix_tokens)
    for i, block in enumerate(vit.blocks):
        block.attn = SparseAttention(block.attn, pattern, grid, layer=i)
    return vit


def _make_uniform(vit: VisionTransformer, restore: bool) -> None:
    """Make the last head of every block uniform.

    Args:
        vit: The model.
        restore: Distribute the channels of that head's queries and keys among the other heads.
    """
    for block in vit.blocks:
        old = block.attn
        if old.num_heads < 2:
            raise UserError('a uniform head needs a model with two heads or more.')
        if list(old.q_norm.parameters()) or getattr(old, 'gate', None) is not None:
            raise UserError('a uniform head does not work with normed queries or gated attention.')
        dim = old.proj.out_features
        block.attn = UniformHeadAttention(
            dim,
            old.num_heads,
            query_width=round(dim / (old.num_heads - 1)) if restore else None,
            qkv_bias=old.qkv.bias is not None,
            attn_drop=old.attn_drop.p,
            proj_drop=old.proj_drop.p,
        )
