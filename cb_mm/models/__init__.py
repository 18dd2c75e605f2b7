"""Backbones, pyramid and heads. Importing this package registers them with mmengine."""

from . import local_vit, mmseg_parts, with_broadcast  # noqa: F401  (importing registers)
from .layer_decay import ViTLayerDecayConstructor
from .pyramid import FeaturePyramid
from .timm_backbone import TimmCB
from .vit import ViTCB

__all__ = ['FeaturePyramid', 'TimmCB', 'ViTCB', 'ViTLayerDecayConstructor']
