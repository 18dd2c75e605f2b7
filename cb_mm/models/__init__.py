"""Backbones, pyramid and heads. Importing this package registers them with mmengine."""

from .. import _old_names
from .backbones import local_vit  # noqa: F401  (importing registers)
from .backbones import with_cb as with_broadcast  # noqa: F401
from .backbones.timm_cb import TimmCB
from .backbones.vit import ViTCB
from .heads import mmseg_registration as mmseg_parts  # noqa: F401  (importing registers)
from .necks.feature_pyramid import FeaturePyramid
from .necks.simple_pyramid import SimplePyramid

__all__ = ['FeaturePyramid', 'SimplePyramid', 'TimmCB', 'ViTCB']
__path__.append(_old_names.folder('models'))
