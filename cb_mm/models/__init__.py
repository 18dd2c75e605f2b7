"""Backbones, pyramid and heads. Importing this package registers them with mmengine."""

from .layer_decay import ViTLayerDecayConstructor
from .pyramid import FeaturePyramid
from .vit import ViTCB

__all__ = ['FeaturePyramid', 'ViTCB', 'ViTLayerDecayConstructor']
