"""Published ViTs: files of timm, DeiT and mmpretrain, without a record of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm

from ..fileio.result_files import read_json
from .label_set import KEY
from .match import weights_in

#: Backbones whose weights have timm's names, so that those of mmpretrain's ViT must be renamed.
_TIMM_NAMES = ('ViTCB', 'TimmCB')

MeanAndStd = tuple[tuple[float, ...], tuple[float, ...]]


def is_published(content: Any, model: Mapping[str, Any] | None = None) -> bool:
    """Return whether a file holds a published ViT that is not, by its names, the model to fill.

    Args:
        content: What the file holds.
        model: The ``model`` of a config. With a backbone of ours, a classifier of mmpretrain's
            counts too; one of mmpretrain's own takes it as it is.
    """
    backbone = model.get('backbone') if model else None
    kind = str(backbone.get('type')) if isinstance(backbone, Mapping) else ''
    if kind.rpartition('.')[2] in _TIMM_NAMES and is_of_mmpretrain(content):
        return True
    if not isinstance(content, Mapping) or 'meta' in content:
        return False
    tensors = next((part for part in (content.get('model'), content) if _is_vit(part)), None)
    return tensors is not None


def _is_vit(part: Any) -> bool:
    return isinstance(part, Mapping) and any(
        re.match(r'(module\.)?(patch_embed\.proj\.weight|blocks\.0\.)', str(key)) for key in part
    )


def is_of_mmpretrain(content: Any) -> bool:
    """Return whether a file holds a ViT, or a classifier with one, that mmpretrain trained."""
    if not isinstance(content, Mapping):
        return False
    meta = content.get('meta')
    if isinstance(meta, Mapping) and KEY in meta:
        return False
    keys = list(weights_in(content))
    vit = r'(backbone\.)?layers\.\d+\.ffn\.layers\.0\.0\.weight$'
    return any(re.match(vit, key) for key in keys) and not any('decode_head' in k for k in keys)


def recorded_normalization(content: Mapping[str, Any]) -> MeanAndStd | None:
    """Return mean and std, in grey levels, from the config that mmengine keeps in a checkpoint.

    The text is read, never run; only plain numbers count, and only those for red, green and blue.
    """
    meta = content.get('meta')
    notes = [meta.get(key) for key in ('cfg', 'config')] if isinstance(meta, Mapping) else []
    text = next((note for note in notes if isinstance(note, str)), '')
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    given = {
        *(_settings(node.value) for node in nodes if isinstance(node, ast.Assign)
          and isinstance(node.targets[0], ast.Name) and node.targets[0].id in _PREPROCESSORS),
        *(_settings(node.value) for node in nodes if isinstance(node, ast.keyword)
          and node.arg in _PREPROCESSORS),
    } - {None}  # fmt: skip
    return given.pop() if len(given) == 1 else None


#: Where the configs of mmpretrain, and of mmcls before it, have the mean and std.
_PREPROCESSORS = ('data_preprocessor', 'img_norm_cfg')


def _settings(node: ast.expr) -> MeanAndStd | None:
    """Return mean and std of ``dict(mean=[…], std=[…], to_rgb=True)``."""
    if not isinstance(node, ast.Call):
        return None
    given = {}
    for word in node.keywords:
        try:
            given[word.arg] = ast.literal_eval(word.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    if given.get('to_rgb') is not True:
        return None
    try:
        mean, std = ([float(value) for value in given[part]] for part in ('mean', 'std'))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return _rounded(mean, std) if len(mean) == len(std) == 3 else None


def published_normalization(file: str | Path) -> MeanAndStd | None:
    """Return mean and std, in grey levels, of a published file: from timm's notes or its name.

    timm's hub keeps a ``config.json`` beside the weights. A name such as
    ``deit_tiny_patch16_224_in1k.safetensors`` says enough if all of timm's weights that it may be
    are normalised in the same way. Google's files, which are all of those with the ending .npz, map
    grey levels to -1 to 1.
    """
    beside = Path(file).with_name('config.json')
    if beside.is_file():
        try:
            cfg = read_json(beside)['pretrained_cfg']
            return _in_grey_levels(cfg['mean'], cfg['std'])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # the notes of something else
    if Path(file).suffix == '.npz':
        return _in_grey_levels((0.5,) * 3, (0.5,) * 3)
    found = {
        _in_grey_levels(cfg.mean, cfg.std)
        for cfg in map(timm.get_pretrained_cfg, _named_in(Path(file).stem))
        if cfg is not None
    }
    return found.pop() if len(found) == 1 else None


def _named_in(stem: str) -> list[str]:
    """Return the names in timm, with their tags, that a file name can mean."""
    known = [
        name for name in timm.list_models() if re.match(rf'{re.escape(name)}(?![a-z0-9])', stem)
    ]
    if not known:
        return []
    name = max(known, key=len)
    tagged = timm.list_pretrained(f'{name}.*')
    # The longest tag in the name is meant; without one, it may be any of them.
    rest = stem[len(name) :]
    tags = sorted((one.partition('.')[2] for one in tagged), key=len)
    meant = [f'{name}.{tag}' for tag in tags if re.search(rf'(?<![a-z0-9]){tag}(?![a-z])', rest)]
    return meant[-1:] or tagged


def _in_grey_levels(mean: Any, std: Any) -> MeanAndStd:
    return _rounded([255 * float(value) for value in mean], [255 * float(value) for value in std])


def _rounded(mean: list[float], std: list[float]) -> MeanAndStd:
    # As a checkpoint's record is.
    return tuple(round(value, 4) for value in mean), tuple(round(value, 4) for value in std)
