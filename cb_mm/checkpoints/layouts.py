"""Layouts of published ViT checkpoints, and their conversion to timm's."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from torch import Tensor, nn

from ..errors import UserError

StateDict = dict[str, Tensor]

#: Where a checkpoint keeps its weights, likeliest first. Averaged weights come before the plain
#: ones, as in timm's own loading; mmengine keeps them under `state_dict` when it averages.
CONTAINERS = (
    'state_dict_ema', 'model_ema', 'state_dict', 'model', 'teacher', 'ema', 'ema_state_dict',
    'module', 'encoder', 'backbone', 'network', 'student',
)  # fmt: skip

#: Tensors of a published ViT that a backbone has no use for: classifiers, decoders, mask tokens.
_HEADS = re.compile(
    r'^(head\w*|fc|fc_norm|norm|ln2|pre_logits|classifier|attn_pool|decoder\w*|mask_token|'
    r'projector|\w+_head)(\.|/|$)'
)

#: What wrappers leave inside a key.
_WRAPPERS = re.compile(r'(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.')

#: layout -> a pattern that some of its keys match, and no key of a layout below
_MARKERS = {
    'mmseg': r'\.attn\.attn\.in_proj_weight$',
    'mmpretrain': r'layers\.\d+\.ffn\.(layers\.0\.0|w12)\.weight$',
    'MAE': r'(^|\.)decoder_(embed|blocks)\.',
    'DINOv2': r'(^|\.)register_tokens$|blocks\.\d+\.(\d+\.)?ls1\.gamma$',
}

_FROM_OPENMMLAB = (
    (r'(^|\.)patch_embed\.projection\.', r'\1patch_embed.proj.'),
    (r'\.ffn\.(layers\.0\.0|w12)\.', '.mlp.fc1.'),
    (r'\.ffn\.(layers\.1|w3)\.', '.mlp.fc2.'),
    (r'\.attn\.attn\.in_proj_(weight|bias)$', r'.attn.qkv.\1'),
    (r'\.attn\.attn\.out_proj\.', '.attn.proj.'),
    (r'\.attn\.gamma1\.\w+$', '.ls1.gamma'),
    (r'\.ffn\.gamma2\.\w+$', '.ls2.gamma'),
    (r'(^|\.)layers\.(\d+)\.(?:ln|norm)([12])\.', r'\1blocks.\2.norm\3.'),
    (r'(^|\.)layers\.(\d+)\.', r'\1blocks.\2.'),
    (r'(^|\.)(?:ln_pre|pre_ln|pre_norm)\.', r'\1norm_pre.'),
    # Alone, `ln1` is the final norm: that of a block is renamed by now.
    (r'(^|\.)ln1\.(weight|bias)$', r'\1norm.\2'),
)
_FROM_FACEBOOK = (
    (r'(^|\.)register_tokens$', r'\1reg_token'),
    # DINOv2's training script cuts the blocks into chunks: blocks.<chunk>.<block>.
    (r'(^|\.)blocks\.\d+\.(\d+)\.', r'\1blocks.\2.'),
    (r'\.mlp\.w12\.', '.mlp.fc1.'),
    (r'\.mlp\.w3\.', '.mlp.fc2.'),
    (r'\.gamma_([12])$', r'.ls\1.gamma'),  # DeiT III
)


def state_dicts_in(content: Any, name: str = '', depth: int = 0) -> Iterator[tuple[str, StateDict]]:
    """Yield every dictionary of tensors in a checkpoint with its place, likeliest first."""
    if not isinstance(content, Mapping) or depth > 3:
        return
    tensors = {key: value for key, value in content.items() if isinstance(value, Tensor)}
    if tensors and all(isinstance(key, str) for key in tensors):
        yield name, tensors
    for key in (*CONTAINERS, *(key for key in content if key not in CONTAINERS)):
        if key in content and 'optim' not in str(key):
            yield from state_dicts_in(content[key], f'{name}.{key}'.strip('.'), depth + 1)


def is_spare(key: str) -> bool:
    """Return whether a tensor without a place in a backbone may be left out: a classifier's."""
    return _HEADS.search(key) is not None


def layout_of(keys: list[str]) -> str:
    """Name of the layout: mmseg, mmpretrain, MAE, DINOv2, or timm, which DeiT and DINO share."""
    for layout, marker in _MARKERS.items():
        if any(re.search(marker, key) for key in keys):
            return layout
    return 'timm'


def rename(state_dict: Mapping[str, Tensor], layout: str) -> StateDict:
    """Return the same tensors under timm's names; prefixes of names are kept."""
    rules = _FROM_OPENMMLAB if layout in ('mmseg', 'mmpretrain') else _FROM_FACEBOOK
    patterns = [(re.compile(old), new) for old, new in rules]
    renamed: StateDict = {}
    for key, value in state_dict.items():
        key = _WRAPPERS.sub('', key)
        for pattern, new in patterns:
            key = pattern.sub(new, key)
        renamed[key] = value
    return renamed


def find_prefix(keys: list[str], wanted: set[str]) -> tuple[str, int]:
    """Return the prefix of the backbone's keys ('', 'backbone.', 'module.', ...), and its count.

    Every cut of every key votes for what it leaves in front. Between equals (a teacher beside a
    student), the shortest plain one wins, then the teacher.
    """
    votes: Counter[str] = Counter()
    for key in keys:
        cuts = [0, *(match.end() for match in re.finditer(r'\.', key))]
        votes.update(key[:cut] for cut in cuts if key[cut:] in wanted)
    if not votes:
        return '', 0
    preferred = ['', 'backbone.', 'module.', 'module.backbone.']

    def rank(prefix: str) -> tuple:
        order = preferred.index(prefix) if prefix in preferred else len(preferred)
        return (-votes[prefix], order, 'teacher' not in prefix, len(prefix), prefix)

    best = min(votes, key=rank)
    return best, votes[best]


def _split_positions(count: int, prefixes: list[int], aspect: float) -> tuple[int, int, int]:
    """Return how many of ``count`` positions are for prefix tokens, and the grid of the rest."""
    for shape in (1.0, aspect):
        for prefix in prefixes:
            cells = count - prefix
            height = round(math.sqrt(cells / shape)) if cells > 0 else 0
            if height and cells % height == 0 and round(height * shape) * height == cells:
                return prefix, height, cells // height
    raise UserError(
        f'a position embedding for {count} tokens is neither for a square grid nor for one of the '
        "model's shape, with or without class token: build the backbone with the img_size that "
        'the weights were made for.'
    )


def fit_position_embedding(
    embedding: Tensor, model: nn.Module, file_prefix: int | None = None
) -> tuple[Tensor, str]:
    """Fit a checkpoint's position embedding to the prefix tokens and grid of ``model``.

    Args:
        embedding: (1, tokens, C).
        model: timm ViT.
        file_prefix: Number of prefix tokens in the checkpoint, where known.

    Returns:
        The embedding, and what was done to the grid ('' when nothing was).
    """
    if embedding.shape == model.pos_embed.shape or embedding.shape[2:] != model.pos_embed.shape[2:]:
        return embedding, ''
    want = 0 if model.no_embed_class else model.num_prefix_tokens
    grid = tuple(model.patch_embed.grid_size)
    known = [] if file_prefix is None else [file_prefix]
    prefix, *old = _split_positions(
        embedding.shape[1], [*known, want, 1, 0, 2, 5], aspect=grid[1] / grid[0]
    )
    tokens, cells = embedding[:, :prefix], embedding[:, prefix:]
    note = ''
    if tuple(old) != grid:
        cells = resample_abs_pos_embed(cells, grid, old, num_prefix_tokens=0)
        note = f'resized pos_embed {old[0]}x{old[1]} -> {grid[0]}x{grid[1]}'
    # A token without a position embedding is one whose embedding is zero.
    missing = cells.new_zeros(1, max(want - prefix, 0), cells.shape[2])
    return torch.cat([tokens[:, :want], missing, cells], dim=1), note


def fit(state_dict: StateDict, model: nn.Module) -> tuple[StateDict, list[str]]:
    """Resize tensors in timm's layout to ``model`` if its image or patch size differs.

    Returns:
        The new state dict, and one note for everything that was changed.
    """
    fitted, notes = dict(state_dict), []
    if getattr(model, 'pos_embed', None) is not None and 'pos_embed' in fitted:
        if getattr(model, 'no_embed_class', False):
            _fold_prefix_positions(fitted, model)
        tokens = [fitted[key].shape[1] for key in _PREFIX_TOKENS if key in fitted]
        fitted['pos_embed'], note = fit_position_embedding(fitted['pos_embed'], model, sum(tokens))
        notes += [note] if note else []
    patches = getattr(getattr(model, 'patch_embed', None), 'proj', None)
    weight = fitted.get('patch_embed.proj.weight')
    if isinstance(patches, nn.Conv2d) and weight is not None:
        if weight.ndim == 2 and weight.numel() == patches.weight.numel():
            fitted['patch_embed.proj.weight'] = weight.reshape(patches.weight.shape)
        elif weight.ndim == 4 and weight.shape[2:] != patches.weight.shape[2:]:
            size = list(patches.kernel_size)
            fitted['patch_embed.proj.weight'] = resample_patch_embed(weight, size)
            old = 'x'.join(map(str, weight.shape[2:]))
            notes.append(f'resized patches {old} -> {size[0]}x{size[1]}')
    # mmseg's ViT has no bias in its patches by default, and any layout may have none in its
    # queries, keys and values: that is a bias of zero.
    for kind in ('patch_embed.proj', 'attn.qkv'):
        zero = {
            key: torch.zeros_like(value, device='cpu')
            for key, value in model.state_dict().items()
            if key.endswith(f'{kind}.bias') and key not in fitted
            and key.removesuffix('bias') + 'weight' in fitted
        }  # fmt: skip
        fitted.update(zero)
        notes += [f'zeroed {kind}.bias, which the file lacks'] if zero else []
    return fitted, notes


_PREFIX_TOKENS = ('cls_token', 'dist_token', 'reg_token')


def _fold_prefix_positions(state_dict: StateDict, model: nn.Module) -> None:
    """Add the positions of the prefix tokens to the tokens, for a model that has none for them.

    The sum is the same. timm's DINOv2 with registers is such a model.
    """
    embedding = state_dict['pos_embed']
    tokens = [key for key in _PREFIX_TOKENS if key in state_dict]
    count = sum(state_dict[key].shape[1] for key in tokens)
    grid = model.patch_embed.grid_size
    prefix, *_ = _split_positions(embedding.shape[1], [0, 1, count], grid[1] / grid[0])
    start = 0
    for key in tokens:
        end = start + state_dict[key].shape[1]
        if end <= prefix:
            state_dict[key] = state_dict[key] + embedding[:, start:end]
        start = end
    state_dict['pos_embed'] = embedding[:, prefix:]
