"""Queries, keys and values of an attention module, from its own input and its own weights.

A module is known by its parts, not by its class: timm's plain, rotary, EVA and BEiT attention,
copies of them elsewhere, and torch's MultiheadAttention. `capture` then checks that the recomputed
attention reproduces the module's real output, so that a look-alike is refused, not misread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import apply_rot_embed_cat
from timm.models.beit import Attention as BeitAttention
from torch import Tensor, nn

from ..errors import UserError

SUPPORTED = (
    "timm's Attention, AttentionRope, EvaAttention and BEiT Attention, ViTCB's uniform and sparse "
    "attention, and torch's MultiheadAttention"
)


@dataclass
class Projection:
    """What a module computes before and after its softmax.

    Attributes:
        q: (B, heads, N, d), scaled.
        k: (B, heads, M, d).
        v: (B, heads, M, d).
        bias: Added to the logits; broadcasts to (B, heads, N, M). None when there is none.
        finish: Mixed values (B, n, heads * d) and the rows that these are -> output (B, n, C).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    finish: Callable[[Tensor, slice | Tensor], Tensor]


def is_attention(module: nn.Module) -> bool:
    """Return whether `project` knows the parts of this module."""
    if isinstance(module, nn.MultiheadAttention) or hasattr(module, 'attention_parts'):
        return True
    parts = (getattr(module, 'num_heads', None), getattr(module, 'proj', None))
    if not isinstance(parts[0], int) or not isinstance(parts[1], nn.Linear):
        return False
    # A table of relative positions means windows (Swin), except in BEiT.
    if getattr(module, 'relative_position_bias_table', None) is not None:
        return isinstance(module, BeitAttention)
    if isinstance(getattr(module, 'qkv', None), nn.Linear):
        return module.qkv.out_features == 3 * module.proj.in_features
    return all(isinstance(getattr(module, f'{x}_proj', None), nn.Linear) for x in 'qkv')


def no_attention(model: nn.Module) -> UserError:
    """Return the error for a model without readable attention: it names what the model has."""
    kind = type(model).__name__
    looks_like = [
        module
        for module in model.modules()
        if any(word in type(module).__name__ for word in ('Attention', 'Attn', 'MSA', 'XCA'))
    ]
    if looks_like:
        names = Counter(type(module).__name__ for module in looks_like)
        what = ', '.join(f'{count} × {name}' for name, count in names.most_common(3))
        parts = sorted({*vars(looks_like[0])['_modules'], *vars(looks_like[0])['_parameters']})
        return UserError(
            f'the attention of {kind} cannot be read: it is {what}, with the parts '
            f'{", ".join(parts) or "none"}. Windowed, pooled and channel attention have no map '
            f'over all tokens. Supported: {SUPPORTED}.'
        )
    leaves = Counter(type(m).__name__ for m in model.modules() if not list(m.children()))
    what = ', '.join(f'{count} × {name}' for name, count in leaves.most_common(5))
    return UserError(
        f'{kind} has no attention; it consists of {what or "nothing"}. Choose a model with a '
        'Vision Transformer, such as ViTCB.'
    )


def project(module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Projection:
    """Recompute q, k and v from the arguments of the module's forward."""
    if isinstance(module, nn.MultiheadAttention):
        return _project_torch(module, *args, **kwargs)
    if hasattr(module, 'attention_parts'):  # it provides them itself
        x = args[0]
        q, k, v, bias = module.attention_parts(x)
        return Projection(
            q.float(), k.float(), v, bias, lambda mixed, rows: module.finish(mixed, x[:, rows])
        )
    return _project_timm(module, *args, **kwargs)


def _project_timm(
    module: nn.Module,
    x: Tensor,
    rope: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    shared_rel_pos_bias: Tensor | None = None,
    **others: Any,
) -> Projection:
    # Only the rotary kinds take `rope`; in others the second argument is a mask or a bias.
    if isinstance(module, BeitAttention):
        shared_rel_pos_bias, rope = (rope if rope is not None else shared_rel_pos_bias), None
    elif rope is not None and not hasattr(module, 'num_prefix_tokens'):
        attn_mask, rope = rope, None
    unknown = [name for name, value in others.items() if value is not None]
    if x.ndim != 3 or unknown:
        reason = f'the argument {unknown[0]}' if unknown else f'input of {x.ndim} dimensions'
        raise UserError(
            f'the attention of {type(module).__name__} with {reason} cannot be read. Supported: '
            f'{SUPPORTED}, on tokens (batch, tokens, channels).'
        )
    q, k, v = _heads(module, x)
    q, k = _part(module, 'q_norm')(q), _part(module, 'k_norm')(k)
    if rope is not None:
        q, k = (_rotate(module, y, rope).type_as(v) for y in (q, k))
    repeats = module.num_heads // k.shape[1]
    if repeats > 1:
        k, v = (y.repeat_interleave(repeats, dim=1) for y in (k, v))
    bias = _additive(attn_mask, is_causal, q)
    if getattr(module, 'relative_position_bias_table', None) is not None:
        bias = module._get_rel_pos_bias()
    if shared_rel_pos_bias is not None:
        bias = shared_rel_pos_bias if bias is None else bias + shared_rel_pos_bias
    gate = getattr(module, 'gate', None)

    def finish(mixed: Tensor, rows: slice | Tensor) -> Tensor:
        mixed = _part(module, 'norm')(mixed)
        if gate is not None:
            mixed = mixed * gate(x[:, rows]).sigmoid()
        return module.proj(mixed)

    scale = getattr(module, 'scale', q.shape[-1] ** -0.5)
    return Projection(q.float() * scale, k.float(), v, bias, finish)


def _part(module: nn.Module, name: str) -> nn.Module:
    """Return a part that only some models have, or one that changes nothing."""
    return getattr(module, name, nn.Identity())


def _heads(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    batch, tokens, _ = x.shape
    if getattr(module, 'qkv', None) is not None:
        bias = module.qkv.bias
        if getattr(module, 'q_bias', None) is not None:
            bias = torch.cat([module.q_bias, module.k_bias, module.v_bias])
        qkv = F.linear(x, module.qkv.weight, bias)
        qkv = qkv.reshape(batch, tokens, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        return q, k, v
    width = module.q_proj.out_features // module.num_heads
    return tuple(
        getattr(module, f'{name}_proj')(x).reshape(batch, tokens, -1, width).transpose(1, 2)
        for name in 'qkv'
    )


def _rotate(module: nn.Module, x: Tensor, rope: Tensor) -> Tensor:
    """Rotate the spatial tokens by their rotary position embedding."""
    prefix = module.num_prefix_tokens
    half = getattr(module, 'rotate_half', False)
    turned = apply_rot_embed_cat(x[:, :, prefix:], rope, half=half)
    return torch.cat([x[:, :, :prefix], turned], dim=2)


def _additive(mask: Tensor | None, causal: bool, q: Tensor) -> Tensor | None:
    """Return a mask in any of torch's forms as something to add to the logits."""
    tokens = q.shape[2]
    if causal:
        mask = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril()
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=q.device).masked_fill(~mask, float('-inf'))


def _project_torch(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Projection:
    odd = {
        'key_padding_mask': key_padding_mask,
        'bias_k': module.bias_k,
        'add_zero_attn': module.add_zero_attn or None,
        'unbatched input': True if query.ndim != 3 else None,
        'kdim or vdim': None if module._qkv_same_embed_dim else True,
    }
    for name, present in odd.items():
        if present is not None:
            raise UserError(
                f'the attention of {type(module).__name__} with {name} cannot be read. Supported: '
                f'{SUPPORTED}.'
            )
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    parts = zip((query, key, value), module.in_proj_weight.chunk(3), biases, strict=True)
    q, k, v = (
        F.linear(x, weight, bias)
        .reshape(*x.shape[:2], module.num_heads, module.head_dim)
        .transpose(1, 2)
        for x, weight, bias in parts
    )
    # torch's module means the opposite of scaled_dot_product_attention: True is masked out.
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    bias = _additive(attn_mask, False, q)
    if bias is not None and bias.ndim == 3:
        bias = bias.reshape(-1, module.num_heads, *bias.shape[1:])

    def finish(mixed: Tensor, rows: slice | Tensor) -> Tensor:
        return F.linear(mixed, module.out_proj.weight, module.out_proj.bias)

    return Projection(q.float() * module.head_dim**-0.5, k.float(), v, bias, finish)


def real_output(module: nn.Module, output: Any) -> Tensor:
    """Return the module's output as (B, N, C)."""
    if isinstance(module, nn.MultiheadAttention):
        output = output[0]
        return output if module.batch_first else output.transpose(0, 1)
    return output
