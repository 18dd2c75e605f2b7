"""Judging many rows at once, and how much measuring a difference needs.

All functions are pure: numbers in, numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LEVEL = 0.05
POWER = 0.8
#: Beyond this many measurements, Student's t and the normal distribution agree to six digits.
_MANY = 1_000_000

#: To be printed wherever an adjusted p-value is.
WHAT_HOLM_MEANS = (
    'p: two-sided, of no difference; by the t-test over repeats and the bootstrap over images, '
    'the larger of the two. Without an interval over images it speaks of the noise of the '
    "corruption alone. p (Holm): adjusted by Holm's method for the number of rows of the same "
    'metric; with no difference anywhere, the chance of any ✓ (below 0.05) is at most 5 %. A row '
    'without p is not counted.'
)


def t_test(mean: float, error: float, freedom: float) -> float:
    """Return the two-sided p-value of a mean that would be 0 by chance.

    Args:
        mean: What was measured.
        error: Its standard error; 0 where nothing varies.
        freedom: Degrees of freedom of the error.
    """
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    from scipy import stats  # here: importing cb_mm need not wait for it

    return float(2 * stats.t.sf(abs(mean) / error, freedom))


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number by Holm's method; None stays None.

    The smallest is multiplied by their number, the next by one less, and so on; none is smaller
    than one before it. Comparing them with 0.05 keeps the chance of any false finding at 5 %.
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min((len(known) - rank) * value, 1.0))
        adjusted[place] = largest
    return adjusted


def power_of(number: int, deviation: float, gap: float, level: float = LEVEL) -> float:
    """Return how often a paired t-test finds a difference of ``gap``.

    Args:
        number: Pairs that are measured.
        deviation: Standard deviation of one pair's difference.
        gap: The true difference.
        level: Of the test, two-sided.
    """
    from scipy import stats

    if deviation == 0:
        return 1.0
    shift = abs(gap) * math.sqrt(number) / deviation
    if number > _MANY:
        end = stats.norm.ppf(1 - level / 2)
        return float(stats.norm.sf(end - shift) + stats.norm.cdf(-end - shift))
    end = stats.t.ppf(1 - level / 2, number - 1)
    if shift > 30:  # beyond what scipy's noncentral t can compute, and certain
        return 1.0
    missed = stats.nct.cdf([-end, end], number - 1, shift)
    return float(1 - (missed[1] - missed[0]))


def needed_number(deviation: float, gap: float, power: float = POWER, level: float = LEVEL) -> int:
    """Return how many pairs find a difference of ``gap`` with this power; at least 2."""
    from scipy import stats

    if gap <= 0:
        raise ValueError('the difference to be found must be above 0')
    reach = stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)
    number = max(math.ceil((reach * deviation / gap) ** 2), 2)  # few enough: t has longer tails
    while number <= _MANY and power_of(number, deviation, gap, level) < power:
        number += 1
    return int(number)


def deviation_per_image(error: float, images: int) -> float:
    """Return the deviation of one image that explains a standard error over ``images``."""
    return error * float(np.sqrt(images))
