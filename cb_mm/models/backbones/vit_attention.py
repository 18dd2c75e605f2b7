"""A timm ViT with another attention than timm's: uniform heads, a sparse pattern, or windows."""

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
from ..attention.window import WindowAttention
from ..broadcast.context_broadcast import check_choice, resolve_indices
from .vit_arch import build_timm_vit


def build_vit(
    arch: str | Mapping[str, Any],
    img_size: int | Sequence[int] | None,
    drop_path_rate: float,
    attention: str | Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> VisionTransformer:
    """Build the ViT of `build_timm_vit` with the requested attention.

    Args:
        arch: As in `build_timm_vit`.
        img_size: As in `build_timm_vit`.
        drop_path_rate: As in `build_timm_vit`.
        attention: None is timm's. 'uniform_a', 'uniform_b' and 'uniform_c' have one uniform head
            (see `uniform_attention`); 'R', 'W', 'G' and their sums, or a dict of `SparsePattern`'s
            attributes, are sparse.
        changes: As in `build_timm_vit`.
    """
    changes = dict(changes or {})
    vit = build_timm_vit(arch, img_size, drop_path_rate, **changes)
    if attention is None:
        return vit
    kind = attention if isinstance(attention, str) else 'R+W+G'
    check_choice('attention', kind, (*UNIFORM_KINDS, *COMBINATIONS))
    _require_plain(vit, f'attention={attention!r}')
    if kind in UNIFORM_KINDS:
        more, restore = UNIFORM_KINDS[kind]
        if more:
            first = vit.blocks[0].attn
            heads = first.num_heads + more
            width = heads * (vit.embed_dim // first.num_heads)
            changes |= dict(embed_dim=width, num_heads=heads)
            vit = build_timm_vit(arch, img_size, drop_path_rate, **changes)
        _make_uniform(vit, restore)
        return vit
    pattern = SparsePattern.read(attention)
    if pattern.added_tokens:
        count = pattern.added_tokens + vit.num_reg_tokens
        changes |= dict(reg_tokens=count)
        vit = build_timm_vit(arch, img_size, drop_path_rate, **changes)
    grid = TokenGrid(vit.patch_embed, vit.num_prefix_tokens)
    for i, block in enumerate(vit.blocks):
        block.attn = SparseAttention(block.attn, pattern, grid, layer=i)
    return vit


def place_windows(
    vit: VisionTransformer, window: int | None, global_blocks: Sequence[int] | None = None
) -> None:
    """Limit the attention of all but a few blocks to windows.

    Args:
        vit: The model.
        window: Side of a window in patches; None: no windows.
        global_blocks: Blocks that attend to the whole image; None is the last of each quarter.
    """
    if window is None:
        if global_blocks is not None:
            raise UserError('global_blocks are those without windows: set window too.')
        return
    if type(window) is not int or window < 1:
        raise UserError(f'window={window!r} is not a whole number of patches from 1.')
    _require_plain(vit, f'window={window}')
    depth = len(vit.blocks)
    if global_blocks is None:
        global_blocks = [round((i + 1) * depth / 4) - 1 for i in range(4)]
    everywhere = resolve_indices('global_blocks', global_blocks, depth)
    grid = TokenGrid(vit.patch_embed, vit.num_prefix_tokens)
    for i, block in enumerate(vit.blocks):
        if i not in everywhere:
            block.attn = WindowAttention(block.attn, window, grid)


def _require_plain(vit: VisionTransformer, option: str) -> None:
    for block in vit.blocks:
        if type(block.attn) is not Attention:
            raise UserError(
                f'{option} replaces a plain attention; the blocks of this model have '
                f'{type(block.attn).__name__}.'
            )


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
