"""The settings of a built model that change its results without changing the shape of a weight.

Number of heads, dilation, pooling scales, ``align_corners``, kind of activation: none of them shows
in a state dict. They are read from the built modules, not from the config, so that a default that
is spelled out equals one that is left to the class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

#: name of a setting, '*' for the number of a repeated part -> its value in each of these parts, or
#: one value where all are equal
Settings = dict[str, list[Any]]

#: Parts that run only in training, or whose settings are recorded elsewhere.
_OTHER_PARTS = ('auxiliary_head', 'data_preprocessor')
#: Settings of training, of initialisation, of the implementation, of evaluation and of bookkeeping;
#: and those that a shape shows or that follow from the size of the image.
_WITHOUT_EFFECT = {
    # training
    'training', 'with_cp', 'grad_checkpointing', 'frozen_stages', 'norm_eval', 'momentum',
    'p', 'inplace', 'ignore_index', 'train_cfg', 'pretrained', 'num_points',
    'oversample_ratio', 'importance_sample_ratio', 'class_weight', 'cal_acc', 'topk',
    'reg_decoded_bbox', 'sampling', 'sampler',
    # implementation
    'fused_attn', 'use_torchvision', 'process_group', 'batch_first',
    'efficient_conv_bn_eval_forward', 'fp16_enabled', 'debug_imgs', 'dynamic_mask',
    'always_partition',
    # evaluation
    'test_cfg',
    # configs of parts that are built, and names
    'norm_cfg', 'conv_cfg', 'act_cfg', 'pretrained_cfg', 'default_cfg', 'arch',
    'arch_settings', 'model_name', 'weights_report', 'feature_info',
    # follow from others
    'base_anchors', 'end_level',
    # of a classifier, which a backbone is not
    'global_pool', 'attn_pool', 'pool_include_prefix', 'head_hidden_size',
    # recorded by themselves
    'broadcast', 'broadcast_layers', 'position', 'skip_out_layers',
    # shown by a shape
    'in_features', 'out_features', 'in_channels', 'out_channels', 'num_features',
    'normalized_shape', 'embed_dim', 'embed_dims', 'in_chans', 'attn_dim', 'head_dim',
    'num_classes', 'channels',
    # size of the image
    'img_size', 'grid_size', 'num_patches', 'input_size', 'fixed_size', 'feat_size',
    'seq_len', 'dynamic_img_size', 'dynamic_img_pad', 'strict_img_size',
}  # fmt: skip
#: So are all with one of these in their name.
_WITHOUT_EFFECT_WORDS = ('drop', 'init', 'resolution')
_PLAIN = (bool, int, float, str, type(None))
#: Modules that do nothing in evaluation, by the start of the name of their class.
_IDLE = ('Identity', 'DropPath', 'Dropout')
_NOTHING = 'nothing'
_MOST_VALUES = 64


def settings_of(model: nn.Module, prefix: str = '') -> Settings:
    """Return the settings of every part of a built model.

    Args:
        model: The model.
        prefix: Prefix of every name, such as 'backbone.' for a backbone by itself.
    """
    found: dict[str, list[Any]] = {}
    for path, module in _parts(model):
        for name, value in _settings(module, is_root=not path):
            words = [word for word in (*path.split('.'), *name.split('.')) if word]
            key = '.'.join('*' if word.isdigit() else word for word in words)
            found.setdefault(prefix + key, []).append(value)
    return {
        key: values[:1] if all(value == values[0] for value in values) else values
        for key, values in sorted(found.items())
    }


def differences(
    one: Mapping[str, list], other: Mapping[str, list]
) -> Iterator[tuple[str, str, str]]:
    """Yield name and both values of each setting that both have and that differs.

    A setting that one of them lacks belongs to another version of a library, or to a part that was
    not built: it tells nothing.
    """
    for key, values in one.items():
        if key in other and not _same(values, other[key]):
            yield key, _text(values), _text(other[key])


def _parts(model: nn.Module, path: str = '') -> Iterator[tuple[str, nn.Module]]:
    """Yield every module that affects a prediction, with its path."""
    unused = tuple(f'{path}.{part}'.lstrip('.') for part in getattr(model, 'unused_parts', ()))
    yield path, model
    for name, child in model.named_children():
        if name in _OTHER_PARTS or name.startswith('loss') or _kind(child) == _NOTHING:
            continue
        for place, part in _parts(child, f'{path}.{name}'.lstrip('.')):
            if not any(f'{place}.'.startswith(f'{start}.') for start in unused):
                yield place, part


def _settings(module: nn.Module, is_root: bool) -> Iterator[tuple[str, Any]]:
    kind = _kind(module)
    if kind and not is_root:
        yield 'type', kind
    yield from _values(vars(module))


def _kind(module: nn.Module) -> str:
    """Return what a module is: '' for a container, `_NOTHING` for what is idle in evaluation."""
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return ''
    if isinstance(module, _BatchNorm):  # synchronised or not
        return 'BatchNorm'
    # A faster implementation names the class whose results it gives.
    kind = getattr(module, 'equivalent_to', None) or type(module).__name__
    return _NOTHING if kind.startswith(_IDLE) or kind.endswith('Loss') else kind


def _values(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in attributes.items():
        if name in _WITHOUT_EFFECT or name.startswith(('_', 'loss')):
            continue
        if any(word in name for word in _WITHOUT_EFFECT_WORDS):
            continue
        if isinstance(value, Mapping):
            yield from ((f'{name}.{key}', inner) for key, inner in _values(_named(value)))
        elif _is_described(value):
            yield from ((f'{name}.{key}', inner) for key, inner in _values(vars(value)))
        else:
            plain = _plain(value)
            if plain is not _UNKNOWN:
                yield name, plain


def _named(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if isinstance(key, str)}


def _is_described(value: Any) -> bool:
    """Tell the helpers of a model whose settings count: coders, anchors, patterns of attention."""
    home = type(value).__module__
    if home.startswith('cb_mm.') and is_dataclass(value):
        return True
    return '.task_modules.' in home and not any(part in home for part in ('assigners', 'samplers'))


_UNKNOWN = object()


def _plain(value: Any) -> Any:
    """Return a value as a checkpoint can keep it: numbers, words and lists of them."""
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        value = value.tolist() if value.numel() <= _MOST_VALUES else _UNKNOWN
    if isinstance(value, Enum):
        value = value.value
    if type(value) in _PLAIN:  # not of a custom class, which safe reading would refuse
        return value
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_VALUES:
        items = [_plain(item) for item in value]
        return _UNKNOWN if any(item is _UNKNOWN for item in items) else items
    return _UNKNOWN


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
        return numbers and abs(one - other) <= 1e-6 * max(abs(one), abs(other))
    return one == other


def _text(values: list[Any]) -> str:
    shown = values[0] if len(values) == 1 else values
    text = repr(shown) if isinstance(shown, str) else str(shown)
    return text if len(text) <= 80 else f'{text[:77]}...'
