"""Noise: every 8-bit value is replaced at random, by itself.

Such a noise is a table of 256 x 256 chances: value in, value out. Sampling from the table is exact
(clipping at black and white and rounding are part of it) and several times faster than drawing
normal or Poisson numbers, because one value costs one 16-bit random number and one look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, pdtr

from ..registry import corruption

_VALUES = np.arange(256)
_BITS = 12
_CELLS = 1 << _BITS
_BLOCK = 1 << 16  # values sampled at a time: the work arrays stay in the cache


@dataclass(frozen=True)
class _Sampler:
    """A table of chances, laid out for look-up.

    The chances of a value are cut into cells of 1/4096. Whole cells are looked up; what does not
    fill a cell is gathered in the rest, drawn by inversion. Nothing is rounded away.

    Attributes:
        cells: 256 * 4096 outcomes (uint8); a row uses its first ``whole`` cells.
        whole: number of cells that are looked up; the others mean the rest.
        rest: 256 * 256 rising numbers: the value plus the cumulated chances of its rest.
    """

    cells: np.ndarray
    whole: int
    rest: np.ndarray


@lru_cache(maxsize=16)
def _sampler(law: Callable[[float], np.ndarray], level: float) -> _Sampler:
    """Lay out ``law(level)``: chances that value ``row`` ends up at or below value ``column``."""
    chances = np.maximum(np.diff(law(level), axis=1, prepend=0.0), 0.0) * _CELLS
    counts = np.floor(chances).astype(int)
    whole = int(counts.sum(axis=1).min())
    cells = np.zeros((256, _CELLS), np.uint8)
    for row in range(256):
        cells[row, :whole] = np.repeat(_VALUES, counts[row])[:whole]
        counts[row] = np.bincount(cells[row, :whole], minlength=256)
    rest = np.cumsum(np.maximum(chances - counts, 0.0), axis=1)
    rest /= np.maximum(rest[:, -1:], np.finfo(float).tiny)
    return _Sampler(cells.reshape(-1), whole, (rest + _VALUES[:, None]).reshape(-1))


def _sample(image: np.ndarray, sampler: _Sampler, rng: np.random.Generator) -> np.ndarray:
    """A new image (any shape, uint8) whose values are drawn from the sampler's chances."""
    values = image.reshape(-1)
    words = rng.integers(0, 2**64, size=-(-values.size // 4), dtype=np.uint64)
    # The byte order is fixed, so that a seed gives the same image on every machine.
    draws = words.astype('<u8', copy=False).view('<u2')[: values.size]
    draws >>= 16 - _BITS
    result = np.empty_like(values)
    index = np.empty(min(_BLOCK, values.size), np.intp)
    for start in range(0, values.size, _BLOCK):
        block = slice(start, min(start + _BLOCK, values.size))
        at = index[: block.stop - block.start]
        np.left_shift(values[block], _BITS, out=at, dtype=np.intp)
        at |= draws[block]
        np.take(sampler.cells, at, out=result[block], mode='clip')
    late = np.flatnonzero(draws >= sampler.whole)
    origin = values[late].astype(np.intp)
    aim = origin + rng.random(late.size)
    # Bisection of all rows at once: several times faster here than numpy's searchsorted.
    place = 256 * origin
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        place += step * (sampler.rest[place + (step - 1)] <= aim)
    result[late] = place - 256 * origin
    return result.reshape(image.shape)


def _cumulate_normal(deviation: np.ndarray) -> np.ndarray:
    """Chances of ``value + deviation * N(0, 1)``, clipped and rounded (deviation: 256 x 1)."""
    upper = _VALUES[None] + 0.5 - _VALUES[:, None]
    # Without deviation the value stays: ndtr of plus or minus infinity is 1 or 0.
    with np.errstate(divide='ignore', over='ignore'):
        cumulated = ndtr(upper / deviation)
    cumulated[:, -1] = 1.0
    return cumulated


def _gaussian_law(sigma: float) -> np.ndarray:
    return _cumulate_normal(np.full((256, 1), sigma))


def _speckle_law(sigma: float) -> np.ndarray:
    return _cumulate_normal(_VALUES[:, None] * sigma)


def _shot_law(white: float) -> np.ndarray:
    # Count k shows as 255 k / white; it is at or below value v as long as that is under v + 1/2.
    most = np.ceil((_VALUES + 0.5) * white / 255) - 1
    expected = _VALUES[:, None] * white / 255
    cumulated = np.where(most < 0, 0.0, pdtr(np.maximum(most, 0)[None], expected))
    cumulated[:, -1] = 1.0
    return cumulated


def _impulse_law(share: float) -> np.ndarray:
    kept = (_VALUES[None] >= _VALUES[:, None]) * (1 - share)
    cumulated = kept + share / 2
    cumulated[:, -1] = 1.0
    return cumulated


@corruption(
    levels=(20.4, 30.6, 45.9, 66.3, 96.9),  # 255 x (0.08, 0.12, 0.18, 0.26, 0.38)
    valid=(0, 255),
    unit='standard deviation in grey levels (0-255)',
    random=True,
    per_value=True,
    paper=(5, 10),
)
def gaussian_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Add normal noise of standard deviation ``level`` grey levels, to every channel by itself."""
    return _sample(image, _sampler(_gaussian_law, level), rng)


@corruption(
    levels=(60, 25, 12, 5, 3),
    valid=(0.1, 1e6),
    unit='number of photons counted at white; fewer are noisier',
    random=True,
    per_value=True,
    paper=(255,),
)
def shot_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Count photons: Poisson noise where white is ``level`` counts."""
    return _sample(image, _sampler(_shot_law, level), rng)


@corruption(
    levels=(0.03, 0.06, 0.09, 0.17, 0.27),
    valid=(0, 1),
    unit='share of values that are replaced',
    random=True,
    per_value=True,
)
def impulse_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Salt and pepper: a share ``level`` of all values becomes 0 or 255, half of it each."""
    return _sample(image, _sampler(_impulse_law, level), rng)


@corruption(
    levels=(0.15, 0.2, 0.35, 0.45, 0.6),
    valid=(0, 10),
    unit='standard deviation as a share of the value',
    random=True,
    per_value=True,
    imagenet_c='extra',
)
def speckle_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Multiply every value by ``1 + level * N(0, 1)``."""
    return _sample(image, _sampler(_speckle_law, level), rng)
