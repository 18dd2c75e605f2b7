"""What ``init_cfg`` says about the weights of a ViT backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.model import initialize

from ...checkpoints.backbone_weights import load_weights
from ...errors import UserError


def initialize_once(backbone: Any) -> None:
    """Load or change the weights as ``init_cfg`` says, unless it was done before.

    Of mmengine's initialisers, 'Pretrained' reads any layout of ViT weights here.

    Args:
        backbone: A ``ViTCB`` or ``TimmCB``; its ``weights_report`` says what was loaded.
    """
    if backbone.is_init:
        return
    cfgs = (
        [backbone.init_cfg]
        if isinstance(backbone.init_cfg, dict)
        else list(backbone.init_cfg or [])
    )
    pretrained = [cfg for cfg in cfgs if _is_pretrained(cfg)]
    initialize(backbone, [cfg for cfg in cfgs if not _is_pretrained(cfg)])
    for cfg in pretrained:
        options = {key: value for key, value in cfg.items() if key not in ('type', 'checkpoint')}
        unknown = sorted(set(options) - {'prefix', 'map_location', 'allow_broadcast_mismatch'})
        if 'trust' in options:
            raise UserError(
                f'init_cfg of {cfg.get("checkpoint")}: a config cannot vouch for a file. '
                'Leave "trust" out; if you trust the source of the file, pass it as `init` '
                'with `trust_checkpoint`.'
            )
        if 'checkpoint' not in cfg or unknown:
            raise UserError(
                f"init_cfg={cfg}: 'Pretrained' takes checkpoint, prefix and "
                'allow_broadcast_mismatch'
                + (f', not {unknown[0]}.' if unknown else '; checkpoint is missing.')
            )
        options.pop('map_location', None)
        backbone.weights_report = load_weights(backbone, cfg['checkpoint'], **options)
    backbone.is_init = True


def _is_pretrained(cfg: Mapping[str, Any]) -> bool:
    kind = cfg.get('type')
    return (kind if isinstance(kind, str) else getattr(kind, '__name__', '')) in (
        'Pretrained',
        'PretrainedInit',
    )
