"""Weights of a ViT as Google released theirs: the arrays of an ``.npz`` file."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def npz(state_dict: dict[str, Tensor], root: str = '', heads: int = 3) -> dict[str, np.ndarray]:
    """Return the arrays of the original JAX release for timm's names.

    Args:
        state_dict: Of timm's VisionTransformer, with its classifier.
        root: In front of every name, as in a file that was saved with its optimizer.
        heads: Of the attention, which timm's names do not tell.
    """
    arrays = {
        'cls': state_dict['cls_token'],
        'embedding/kernel': state_dict['patch_embed.proj.weight'].permute(2, 3, 1, 0),
        'embedding/bias': state_dict['patch_embed.proj.bias'],
        'Transformer/posembed_input/pos_embedding': state_dict['pos_embed'],
        'Transformer/encoder_norm/scale': state_dict['norm.weight'],
        'Transformer/encoder_norm/bias': state_dict['norm.bias'],
        'head/kernel': state_dict['head.weight'].T,
        'head/bias': state_dict['head.bias'],
    }
    width = state_dict['cls_token'].shape[-1]
    for i in range(sum(key.endswith('norm1.weight') for key in state_dict)):
        old, new = f'blocks.{i}.', f'Transformer/encoderblock_{i}/'
        attention = new + 'MultiHeadDotProductAttention_1/'
        for j, name in ((1, 'LayerNorm_0'), (2, 'LayerNorm_2')):
            arrays[f'{new}{name}/scale'] = state_dict[f'{old}norm{j}.weight']
            arrays[f'{new}{name}/bias'] = state_dict[f'{old}norm{j}.bias']
        for j, name in enumerate(('query', 'key', 'value')):
            weight = state_dict[f'{old}attn.qkv.weight'].chunk(3)[j]
            bias = state_dict[f'{old}attn.qkv.bias'].chunk(3)[j]
            arrays[f'{attention}{name}/kernel'] = weight.T.reshape(width, heads, -1)
            arrays[f'{attention}{name}/bias'] = bias.reshape(heads, -1)
        out = state_dict[f'{old}attn.proj.weight'].T.reshape(heads, -1, width)
        arrays[f'{attention}out/kernel'] = out
        arrays[f'{attention}out/bias'] = state_dict[f'{old}attn.proj.bias']
        for j in (0, 1):
            dense = f'{new}MlpBlock_3/Dense_{j}/'
            arrays[f'{dense}kernel'] = state_dict[f'{old}mlp.fc{j + 1}.weight'].T
            arrays[f'{dense}bias'] = state_dict[f'{old}mlp.fc{j + 1}.bias']
    return {root + key: value.contiguous().numpy() for key, value in arrays.items()}
