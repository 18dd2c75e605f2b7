"""WithCB: any backbone of an OpenMMLab registry, with Context Broadcasting, in a config."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

from mmengine.registry import MODELS
from torch import nn

from ...errors import UserError
from ..broadcast.context_broadcast import resolve_layers
from ..broadcast.insert import add_context_broadcast


@MODELS.register_module(name='WithCB')
def with_broadcast(
    backbone: dict,
    broadcast: str | None = 'cb',
    layers: str | Iterable[int] | None = None,
    pattern: str | None = None,
    init_cfg: dict | list[dict] | None = None,
    **options: Any,
) -> nn.Module:
    r"""Build a backbone and add CB to it. The result is that backbone, with its own keys.

    Its maps become a tuple, which mmpretrain's necks ask for; mmdet's PVT returns a list.

    The PVT-S of the first version, which timm does not have, in a segmentor of mmseg::

        backbone=dict(
            type='WithCB',
            backbone=dict(type='mmdet.PyramidVisionTransformer', num_layers=[3, 4, 6, 3]),
            broadcast='cb')

    Args:
        backbone: Config of the backbone; a name such as 'mmdet.X' is found from mmseg too.
        broadcast: As in `add_context_broadcast`, and so are the following; None: no CB.
        layers: Which of the MLPs. None: all for CB_S, the upper half for the others.
        pattern: Names of the modules, as a glob; or, after 're:', a regular expression.
        init_cfg: Weights of the backbone, in its own way; instead of one in ``backbone``.
        options: Further arguments of `add_context_broadcast`.
    """
    kind = backbone.get('type')
    if kind is None:
        raise UserError(f'WithCB: backbone={dict(backbone)} has no type.')
    scope = kind.partition('.')[0] if isinstance(kind, str) and '.' in kind else None
    if scope in ('mmdet', 'mmseg', 'mmpretrain'):
        importlib.import_module(f'{scope}.models')
    if init_cfg is not None:
        backbone = {**backbone, 'init_cfg': init_cfg}
    model = MODELS.build(backbone)
    model.register_forward_hook(_as_tuple)
    if broadcast is None:
        return model
    chosen: str | re.Pattern | None = pattern
    if isinstance(pattern, str) and pattern.startswith('re:'):
        chosen = re.compile(pattern.removeprefix('re:'))
    added = add_context_broadcast(model, broadcast, layers, chosen, **options)
    # For the record of a checkpoint, as ViTCB and TimmCB have them.
    model.broadcast, model.position = broadcast, f'{options.get("where", "output")} of the MLPs'
    model.broadcast_layers = tuple(sorted(set(resolve_layers(layers, added.found, broadcast))))
    return model


def _as_tuple(module: nn.Module, args: tuple, output: Any) -> Any:
    return tuple(output) if isinstance(output, list) else output
