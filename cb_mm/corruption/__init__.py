"""Corrupted input: pure functions, the pipeline transform, and named sets of corruptions."""

from .. import _old_names
from . import functional  # noqa: F401  (importing fills the table)
from .augmentation import AugMix, RandomCorruption
from .pipeline import corrupt_dataset, corrupt_dataset_cfg, insert_corruption
from .registry import CORRUPTIONS, SEVERITIES, Corruption, corrupt, find_corruption
from .suites import SUITES, Cell, cells_for, parse_corruption
from .transform import ImageCorruption, image_identity, noise_generator

__all__ = [
    'CORRUPTIONS',
    'SEVERITIES',
    'SUITES',
    'AugMix',
    'Cell',
    'Corruption',
    'ImageCorruption',
    'RandomCorruption',
    'cells_for',
    'corrupt',
    'corrupt_dataset',
    'corrupt_dataset_cfg',
    'find_corruption',
    'image_identity',
    'insert_corruption',
    'noise_generator',
    'parse_corruption',
]
__getattr__ = _old_names.renamed(__name__, {'find': 'find_corruption'})
