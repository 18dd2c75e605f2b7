"""Noise: every 8-bit value is replaced at random, independently of the others.

Such a noise is a table of chances: 256 values in, 256 values out, clipping and rounding included.
Drawing from the table is exact, and several times faster than drawing normal or Poisson numbers:
a value costs one 16-bit random number and one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, pdtr

from ..registry import corruption

_VALUES = np.arange(256)
_SHIFTS = np.arange(-255, 256)  # a shift beyond these clips like the last of them
_BLOCK = 1 << 16  # values drawn at a time: the work arrays stay small, whatever the image


def _blocks(
    image: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return a new image and its blocks: input values, 16-bit random numbers, output view."""
    result = np.empty_like(image)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        values, written = image.reshape(-1), result.reshape(-1)
        for start in range(0, values.size, _BLOCK):
            block = values[start : start + _BLOCK]
            words = rng.integers(0, 2**64, size=-(-block.size // 4), dtype=np.uint64)
            # The byte order is fixed, so that a seed gives the same image on every machine.
            numbers = words.astype('<u8', copy=False).view('<u2')[: block.size]
            yield block, numbers, written[start : start + _BLOCK]

    return result, blocks()


# ----- noise that does not depend on the value: one table of shifts


@lru_cache(maxsize=64)
def _shift_table(sigma: float) -> tuple[np.ndarray, int, np.ndarray]:
    """Return the chances of rounded normal shifts, laid out for look-up.

    The chances are cut into 65536 cells. Full cells are looked up; what does not fill a cell goes
    into a remainder, which is drawn by inversion. Nothing is rounded away.

    Returns:
        The shift of every cell (int16), the number of full cells (the others mean the remainder),
        and the cumulative chances of the remainder, by shift.
    """
    with np.errstate(divide='ignore', over='ignore'):  # no sigma, no shift: ndtr(+-inf) is 1 or 0
        cumulated = ndtr((_SHIFTS + 0.5) / sigma)
    cumulated[-1] = 1.0
    chances = np.diff(cumulated, prepend=0.0) * 65536
    counts = np.floor(chances).astype(int)
    cells = np.zeros(65536, np.int16)
    whole = int(counts.sum())
    cells[:whole] = np.repeat(_SHIFTS, counts)
    rest = np.cumsum(chances - counts)
    return cells, whole, rest / max(rest[-1], np.finfo(float).tiny)


@corruption(
    levels=(20.4, 30.6, 45.9, 66.3, 96.9),  # 255 x (0.08, 0.12, 0.18, 0.26, 0.38)
    valid=(0, 255),
    unit='standard deviation in grey levels (0-255)',
    random=True,
    per_value=True,
    paper=(5, 10),
)
def gaussian_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Add normal noise of standard deviation ``level`` grey levels to each channel separately."""
    # Values are integers, so rounding the sum is rounding the noise: the same for every value.
    cells, whole, rest = _shift_table(level)
    result, blocks = _blocks(image, rng)
    for values, numbers, written in blocks:
        noise = np.take(cells, numbers, mode='clip')
        late = np.flatnonzero(numbers >= whole)
        noise[late] = _SHIFTS[np.searchsorted(rest, rng.random(late.size), side='right')]
        noise += values
        written[:] = np.clip(noise, 0, 255, out=noise)
    return result


# ----- noise that depends on the value: a table of outcomes for each of the 256

_BITS = 12
_CELLS = 1 << _BITS


@dataclass(frozen=True)
class _Outcomes:
    """Chances of every outcome of every value, laid out like the shifts, 4096 cells per value.

    Attributes:
        cells: 256 * 4096 outcomes (uint8); of each value the first ``whole`` are looked up.
        whole: number of full cells; the others mean the remainder.
        rest: 256 * 256 rising numbers: the value plus the cumulative chances of its remainder.
    """

    cells: np.ndarray
    whole: int
    rest: np.ndarray


@lru_cache(maxsize=16)
def _outcome_table(law: Callable[[float], np.ndarray], level: float) -> _Outcomes:
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
    return _Outcomes(cells.reshape(-1), whole, (rest + _VALUES[:, None]).reshape(-1))


def _draw(
    image: np.ndarray, law: Callable[[float], np.ndarray], level: float, rng: np.random.Generator
) -> np.ndarray:
    """Return a new image (any shape, uint8) whose values are drawn by the law."""
    table = _outcome_table(law, level)
    result, blocks = _blocks(image, rng)
    for values, numbers, written in blocks:
        numbers >>= 16 - _BITS
        place = values.astype(np.intp)
        place <<= _BITS
        place |= numbers
        np.take(table.cells, place, out=written, mode='clip')

        late = np.flatnonzero(numbers >= table.whole)
        row = 256 * values[late].astype(np.intp)
        aim = row / 256 + rng.random(late.size)
        # Bisection of all rows at once: several times faster here than numpy's searchsorted.
        place = row.copy()
        for step in (128, 64, 32, 16, 8, 4, 2, 1):
            place += step * (table.rest[place + (step - 1)] <= aim)
        written[late] = place - row
    return result


def _shot_law(white: float) -> np.ndarray:
    # Count k shows as 255 k / white; it is at or below value v as long as that is under v + 1/2.
    most = np.ceil((_VALUES + 0.5) * white / 255) - 1
    expected = _VALUES[:, None] * white / 255
    cumulated = np.where(most < 0, 0.0, pdtr(np.maximum(most, 0)[None], expected))
    cumulated[:, -1] = 1.0
    return cumulated


def _impulse_law(share: float) -> np.ndarray:
    cumulated = (_VALUES[None] >= _VALUES[:, None]) * (1 - share) + share / 2
    cumulated[:, -1] = 1.0
    return cumulated


def _speckle_law(share: float) -> np.ndarray:
    upper = _VALUES[None] + 0.5 - _VALUES[:, None]
    with np.errstate(divide='ignore', over='ignore'):  # black stays: ndtr(+-inf) is 1 or 0
        cumulated = ndtr(upper / (_VALUES[:, None] * share))
    cumulated[:, -1] = 1.0
    return cumulated


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
    return _draw(image, _shot_law, level, rng)


@corruption(
    levels=(0.03, 0.06, 0.09, 0.17, 0.27),
    valid=(0, 1),
    unit='share of values that are replaced',
    random=True,
    per_value=True,
)
def impulse_noise(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Add salt and pepper: a share ``level`` of all values becomes 0 or 255, half of it each."""
    return _draw(image, _impulse_law, level, rng)


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
    return _draw(image, _speckle_law, level, rng)
