"""Heads that follow a backbone which is wider than its name says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from mmengine.config import Config

from ..models.attention.uniform import UNIFORM_KINDS
from ..models.backbones.vit_arch import build_timm_vit
from ..models.backbones.vit_attention import build_vit


def follow_uniform_head(config: Config) -> None:
    """Let every ``in_channels`` of a model follow the additional uniform head of its ViTCB.

    ``attention='uniform_c'`` widens the whole model by one head. Heads and necks that expect the
    width of the plain model then expect this one. Other models are unchanged.
    """
    model = config.get('model') or {}
    backbone = model.get('backbone') or {}
    kind = backbone.get('attention')
    if backbone.get('type') not in ('ViTCB', 'mmengine.ViTCB') or not isinstance(kind, str):
        return
    if not UNIFORM_KINDS.get(kind, (0, False))[0]:
        return
    arch, changes = backbone.get('arch', 'small'), dict(backbone.get('arch_changes') or {})
    with torch.device('meta'):
        plain = build_timm_vit(arch, None, 0.0, **changes).embed_dim
        wide = build_vit(arch, None, 0.0, kind, changes).embed_dim
    _replace(model, plain, wide)


def _replace(node: Any, plain: int, wide: int) -> None:
    if isinstance(node, (list, tuple)):
        for item in node:
            _replace(item, plain, wide)
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        if key != 'in_channels':
            _replace(value, plain, wide)
        elif value == plain:
            node[key] = wide  # type: ignore[index]
        elif isinstance(value, (list, tuple)) and set(value) == {plain}:
            node[key] = type(value)([wide] * len(value))  # type: ignore[index]
