"""Data sets: the embedded scenes, and checks of real data sets before they are used."""

from .. import _old_names
from .checks.registry import Problem, Report, check, check_ade20k, check_coco, require_valid
from .scenes.classes import (
    SCENE_CLASSES,
    SCENE_LABELS,
    SCENE_PALETTE,
    SCENE_THING_CLASSES,
    SCENE_THINGS,
)
from .scenes.write import SCENE_SIZE, ScenePaths, write_scenes

__all__ = [
    'SCENE_CLASSES',
    'SCENE_LABELS',
    'SCENE_PALETTE',
    'SCENE_SIZE',
    'SCENE_THINGS',
    'SCENE_THING_CLASSES',
    'Problem',
    'Report',
    'ScenePaths',
    'check',
    'check_ade20k',
    'check_coco',
    'require_valid',
    'write_scenes',
]
__getattr__ = _old_names.renamed(__name__, {'require': 'require_valid'})
