"""The table of corruptions: what each one is called, how strong it can be, and how it is measured.

A corruption is a pure function ``(image, level, rng) -> image``. ``level`` is in the natural unit
of the corruption (grey levels, pixels, a JPEG quality ...); ``severity`` 1-5 names five such
levels: those of ImageNet-C, for every corruption that ImageNet-C has.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError, did_you_mean

#: image (uint8 RGB, H x W x 3), level, generator -> new image of the same shape and type
#: Corruptions without chance are called with None for the generator. Frost has an option.
ImageFunction = Callable[..., np.ndarray]

SEVERITIES = (1, 2, 3, 4, 5)

CORRUPTIONS: dict[str, Corruption] = {}


@dataclass(frozen=True)
class Corruption:
    """One entry of the table.

    Attributes:
        name: how configs and command lines call it.
        function: the pure function; it checks its own image and level.
        levels: the levels of severity 1 to 5.
        low: the smallest level it takes.
        high: the largest level it takes.
        unit: what a level means, in words.
        random: False when one image and one level have a single result.
        whole: True when a level must be a whole number.
        per_value: True when every value of every channel is changed separately, so that the number
            of channels does not matter.
        imagenet_c: 'common' for the 15 of the ImageNet-C benchmark, 'extra' for the 4 held-out
            ones, None for the others.
        paper: the levels at which Table 9 of the paper measures (for shot noise: our reading).
        note: how it differs from what its name promises, for lists of corruptions.
    """

    name: str
    function: ImageFunction
    levels: tuple[float, ...]
    low: float
    high: float
    unit: str
    random: bool
    whole: bool = False
    per_value: bool = False
    imagenet_c: str | None = 'common'
    paper: tuple[float, ...] = ()
    note: str = ''

    def check_level(self, level: Any) -> float:
        """Return the level as a float; raise a UserError if it is not a number or out of range."""
        number = isinstance(level, (int, float, np.integer, np.floating))
        if isinstance(level, bool) or not number or not self.low <= float(level) <= self.high:
            raise UserError(
                f'level {level!r} of {self.name} is out of range: '
                f'it is the {self.unit}, from {self.low:g} to {self.high:g}'
            )
        if self.whole and float(level) != math.floor(float(level)):
            raise UserError(f'level {level!r} of {self.name} must be a whole number ({self.unit})')
        return float(level)

    def level_of(self, severity: object) -> float:
        """Return the level of a severity from 1 to 5."""
        if isinstance(severity, bool) or severity not in SEVERITIES:
            raise UserError(f'severity {severity!r} of {self.name} must be 1, 2, 3, 4 or 5')
        return float(self.levels[int(severity) - 1])

    def resolve(self, severity: int | None = None, level: float | None = None) -> float:
        """Return the level; exactly one of ``severity`` and ``level`` must be given."""
        if (severity is None) == (level is None):
            given = 'neither' if level is None else 'both'
            raise UserError(
                f'{self.name} needs either severity (1-5) or level ({self.unit}); {given} given'
            )
        return self.level_of(severity) if level is None else self.check_level(level)


def words(name: str) -> str:
    """Return a corruption as people write it: 'Gaussian noise'."""
    return name.replace('_', ' ').replace('gaussian', 'Gaussian').replace('jpeg', 'JPEG')


def find_corruption(name: str) -> Corruption:
    """Return the entry called ``name``; a UserError suggests the nearest name if there is none."""
    if name in CORRUPTIONS:
        return CORRUPTIONS[name]
    hint = did_you_mean(str(name).lower().replace('-', '_'), CORRUPTIONS)
    raise UserError(f'unknown corruption {name!r}.{hint} Known are {", ".join(CORRUPTIONS)}.')


def corruption(
    *,
    levels: tuple[float, ...],
    valid: tuple[float, float],
    unit: str,
    random: bool,
    whole: bool = False,
    per_value: bool = False,
    imagenet_c: str | None = 'common',
    paper: tuple[float, ...] = (),
    note: str = '',
) -> Callable[[Callable[..., np.ndarray]], ImageFunction]:
    """Enter the decorated function in the table, and let it check its image and level first."""

    def enter(function: Callable[..., np.ndarray]) -> ImageFunction:
        @functools.wraps(function)
        def checked(
            image: np.ndarray,
            level: float,
            rng: np.random.Generator | None = None,
            **options: Any,
        ) -> np.ndarray:
            _check_image(image, entry)
            if random and not isinstance(rng, np.random.Generator):
                raise UserError(f'{entry.name} is random and needs a numpy.random.Generator')
            level = entry.check_level(level)
            return function(np.ascontiguousarray(image), level, rng, **options)

        entry = Corruption(
            name=function.__name__,
            function=checked,
            levels=levels,
            low=valid[0],
            high=valid[1],
            unit=unit,
            random=random,
            whole=whole,
            per_value=per_value,
            imagenet_c=imagenet_c,
            paper=paper,
            note=note,
        )
        CORRUPTIONS[entry.name] = entry
        return checked

    return enter


def corrupt(
    image: np.ndarray,
    name: str,
    rng: np.random.Generator | None = None,
    *,
    severity: int | None = None,
    level: float | None = None,
    **options: Any,
) -> np.ndarray:
    """Corrupt an RGB or grey-scale uint8 image by name.

    A grey-scale image (H x W or H x W x 1) keeps its shape. Corruptions with a colour, such as mud,
    are converted with the luma weights of ITU-R 601. ``options`` are the function's own: frost
    takes ``pictures``.
    """
    entry = find_corruption(name)
    level = entry.resolve(severity, level)
    grey = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1)
    if not grey or entry.per_value:
        return entry.function(image, level, rng, **options)
    colour = np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
    changed = entry.function(colour, level, rng, **options)
    # The weights are in thousandths, so that equal channels come back as they were.
    luma = (changed.astype(np.uint32) @ np.array([299, 587, 114], np.uint32) + 500) // 1000
    return luma.astype(np.uint8).reshape(image.shape)


def _check_image(image: object, entry: Corruption) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        kind = image.dtype if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f'{entry.name} takes an image of 8-bit values (numpy uint8), not {kind}')
    if image.size == 0:
        raise UserError(f'{entry.name} was given an empty image, of shape {image.shape}')
    channels = image.shape[2] if image.ndim == 3 else 0
    if channels != 3 and not (entry.per_value and (image.ndim == 2 or channels == 1)):
        raise UserError(
            f'{entry.name} takes an RGB image, height x width x 3, not one of shape {image.shape}; '
            'load images with 3 channels (color_type="color")'
        )
