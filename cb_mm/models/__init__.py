"""Backbones, pyramid and heads. Importing this package registers them with mmengine."""

from . import mmseg_parts  # noqa: F401  (importing registers)
from .layer_decay import ViTLayerDecayConstructor
from .pyramid import FeaturePyramid
from .vit import ViTCB

__all__ = ['FeaturePyramid', 'ViTCB', 'ViTLayerDecayConstructor']
