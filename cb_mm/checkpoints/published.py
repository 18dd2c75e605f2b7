"""Published ViTs: files of timm and DeiT, without a record of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm

MeanAndStd = tuple[tuple[float, ...], tuple[float, ...]]


def is_published(content: Any) -> bool:
    """Return whether a file holds a bare ViT: not a model of OpenMMLab's, and nothing of ours."""
    if not isinstance(content, Mapping) or 'meta' in content:
        return False
    tensors = next((part for part in (content.get('model'), content) if _is_vit(part)), None)
    return tensors is not None


def _is_vit(part: Any) -> bool:
    return isinstance(part, Mapping) and any(
        re.match(r'(module\.)?(patch_embed\.proj\.weight|blocks\.0\.)', str(key)) for key in part
    )


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
            cfg = json.loads(beside.read_text(encoding='utf-8'))['pretrained_cfg']
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
    # Rounded as a checkpoint's record is.
    return (
        tuple(round(255 * float(value), 4) for value in mean),
        tuple(round(255 * float(value), 4) for value in std),
    )
