"""Named sets of corruptions, and how a command line names single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UserError, did_you_mean
from . import functional  # noqa: F401  (importing fills the table)
from .registry import CORRUPTIONS, SEVERITIES, find_corruption

CLEAN = 'clean'


@dataclass(frozen=True)
class Cell:
    """One measurement of a robustness table: the clean images, or a corruption at one level.

    Attributes:
        name: a corruption, or 'clean'.
        level: its level; None for clean images.
        severity: the severity by which the level was requested, if it was; else None.
    """

    name: str
    level: float | None = None
    severity: int | None = None

    @property
    def key(self) -> str:
        """Short and unique, as on the command line: 'clean', 'gaussian_noise=5'."""
        return self.name if self.level is None else f'{self.name}={self.level:g}'

    @property
    def label(self) -> str:
        """For readers: 'gaussian_noise=5', or 'gaussian_noise, severity 3'."""
        return self.key if self.severity is None else f'{self.name}, severity {self.severity}'

    @property
    def random(self) -> bool:
        """Whether repeated measurements differ."""
        return self.level is not None and find_corruption(self.name).random

    def transform_cfg(self, seed: int = 0, repeat: int = 0) -> dict[str, Any] | None:
        """Return the config of the ImageCorruption for this cell; None when clean."""
        if self.level is None:
            return None
        return {
            'type': 'ImageCorruption',
            'name': self.name,
            'level': self.level,
            'seed': seed,
            'repeat': repeat,
        }


def _at_level(name: str, level: float) -> Cell:
    return Cell(name, find_corruption(name).check_level(level))


def _at_severity(name: str, severity: int) -> Cell:
    return Cell(name, find_corruption(name).level_of(severity), severity)


#: The 16 of SegFormer (Xie et al., NeurIPS 2021), which made Cityscapes-C in the way of
#: Kamann and Rother (CVPR 2020, arXiv 1908.05005): of the noises only severities 1 to 3, since more
#: leaves too little of a street scene. ImageNet-C's zoom blur, elastic transform and pixelate are
#: not among them; its four held-out corruptions are.
_CITYSCAPES_NOISES = ('gaussian_noise', 'impulse_noise', 'shot_noise', 'speckle_noise')
_CITYSCAPES_OTHERS = (
    *('motion_blur', 'defocus_blur', 'glass_blur', 'gaussian_blur'),
    *('brightness', 'contrast', 'saturate', 'jpeg_compression'),
    *('snow', 'spatter', 'fog', 'frost'),
)

_COMMON = [entry.name for entry in CORRUPTIONS.values() if entry.imagenet_c == 'common']
#: Michaelis et al. (2019, arXiv 1907.07484) measure with the package imagecorruptions, whose
#: elastic transform has no affine map.
_COCO = ['elastic_displacement' if name == 'elastic_transform' else name for name in _COMMON]


def _at_severities(names: Sequence[str], severities: Sequence[int] = SEVERITIES) -> list[Cell]:
    return [_at_severity(name, severity) for name in names for severity in severities]


#: What each suite measures. Clean images come first: everything else is compared with them.
SUITES: dict[str, tuple[Cell, ...]] = {
    CLEAN: (Cell(CLEAN),),
    'table9': (
        Cell(CLEAN),
        _at_level('shot_noise', 255),  # our reading: the paper does not give the level
        _at_level('gaussian_noise', 5),
        _at_level('gaussian_noise', 10),
        _at_level('gaussian_blur', 1),
        _at_level('gaussian_blur', 2),
    ),
    'imagenet-c': (Cell(CLEAN), *_at_severities(_COMMON)),
    'cityscapes-c': (
        Cell(CLEAN),
        *_at_severities(_CITYSCAPES_NOISES, SEVERITIES[:3]),
        *_at_severities(_CITYSCAPES_OTHERS),
    ),
    'coco-c': (Cell(CLEAN), *_at_severities(_COCO)),
}


def parse_corruption(text: str, severity: int | None = None) -> list[Cell]:
    """Return the cells that NAME, NAME=LEVEL or NAME=LEVEL,LEVEL,... stands for.

    A name alone is measured at ``severity``, or at all five when there is none.
    """
    name, equals, levels = text.partition('=')
    entry = find_corruption(name)
    if not equals:
        return _at_severities([name], SEVERITIES if severity is None else (severity,))
    try:
        return [_at_level(name, float(level)) for level in levels.split(',')]
    except ValueError:
        raise UserError(
            f'{text!r}: after "=" comes the level of {name}, a number '
            f'({entry.unit}, {entry.low:g} to {entry.high:g})'
        ) from None


def cells_for(
    suite: str | None = None, corruptions: Sequence[str] = (), severity: int | None = None
) -> list[Cell]:
    """Return what to measure, without duplicates: clean images, the suite, the corruptions.

    Args:
        suite: a name of ``SUITES``.
        corruptions: texts for ``parse_corruption``.
        severity: the severity of the corruptions that are named without a level.
    """
    if suite is not None and suite not in SUITES:
        hint = did_you_mean(suite.lower().replace('_', '-'), SUITES)
        raise UserError(f'unknown suite {suite!r}.{hint} Known are {", ".join(SUITES)}.')
    if severity is not None and all('=' in text for text in corruptions):
        raise UserError(
            f'severity {severity} has nothing to set: it is for corruptions named without a level'
        )
    cells = [Cell(CLEAN), *(SUITES[suite] if suite else ())]
    for text in corruptions:
        cells += parse_corruption(text, severity)
    unique: dict[str, Cell] = {}
    for cell in cells:
        unique.setdefault(cell.key, cell)
    return list(unique.values())
