"""What repeated measurements show, and what they do not.

All functions are pure: numbers in, numbers out. Intervals use Student's t; a single measurement has
no interval, and none is made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.interval import standard_errors
from .significance import t_test

CONFIDENCE = 0.95

#: To be printed wherever an interval is.
WHAT_REPEATS_MEASURE = (
    'Repeats measure the noise of the corruption on one trained model, not of training: models '
    'trained with other seeds can differ by more than these intervals.'
)


@dataclass(frozen=True)
class Summary:
    """Repeated measurements of one quantity.

    Attributes:
        n: how many measurements.
        mean: their mean.
        std: sample standard deviation (n - 1 in the denominator); None when n = 1.
        low: lower end of the confidence interval of the mean; None when n = 1.
        high: upper end.
    """

    n: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """The value after ±: half of the interval; None when there is no interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def summarize(values: Sequence[float], confidence: float = CONFIDENCE) -> Summary:
    """Return mean, standard deviation and confidence interval of the mean."""
    numbers = np.asarray(list(values), dtype=np.float64)
    if numbers.size == 0:
        raise ValueError('there is nothing to summarize: no measurement was given')
    mean = float(numbers.mean())
    if numbers.size == 1:
        return Summary(1, mean)
    std = float(numbers.std(ddof=1))
    half = standard_errors(confidence, numbers.size - 1) * std / math.sqrt(numbers.size)
    return Summary(int(numbers.size), mean, std, mean - half, mean + half)


def retention(corrupted: float, clean: float) -> float | None:
    """Return the share of the clean score left under corruption; None unless clean > 0."""
    if not clean > 0 or not math.isfinite(corrupted):
        return None
    return corrupted / clean


@dataclass(frozen=True)
class MeanPerformance:
    """Performance over corruptions and severities, as in the benchmark of Michaelis et al.

    Attributes:
        mpc: mean performance under corruption: over severities, then over corruptions.
        rpc: relative performance under corruption, mpc / clean; None without a clean score.
        corruptions: how many corruptions.
        severities: which severities; the usual mPC has all of 1 to 5 for every corruption.
        complete: True when every corruption has all of ``severities``, and they are 1 to 5.
    """

    mpc: float
    rpc: float | None
    corruptions: int
    severities: tuple[int, ...]
    complete: bool


def mean_performance(
    scores: Mapping[tuple[str, int], float], clean: float | None = None
) -> MeanPerformance:
    """Return mPC and rPC.

    Args:
        scores: (corruption, severity) -> score, repeats already averaged.
        clean: score on clean images.
    """
    if not scores:
        raise ValueError('mPC needs at least one corruption at one severity')
    rows: dict[str, dict[int, float]] = {}
    for (name, severity), score in scores.items():
        rows.setdefault(name, {})[severity] = score
    mpc = float(np.mean([np.mean(list(row.values())) for row in rows.values()]))
    severities = tuple(sorted({severity for row in rows.values() for severity in row}))
    complete = severities == (1, 2, 3, 4, 5) and all(len(row) == 5 for row in rows.values())
    rpc = None if clean is None else retention(mpc, clean)
    return MeanPerformance(mpc, rpc, len(rows), severities, complete)


@dataclass(frozen=True)
class Difference:
    """Mean of one model minus mean of another.

    Attributes:
        mean: the difference.
        low: lower end of its confidence interval; None when there is none.
        high: upper end.
        n: measurements of the first and of the second model that went in.
        method: 'paired' (the same noise in both models, repeat by repeat), 'Welch' (independent
            noise), or 'single' (at least one model was measured once: no interval).
        p: two-sided p-value of no difference; None where there is no interval.
        std: standard deviation of the difference of one repeat; None where there is no interval.
    """

    mean: float
    low: float | None
    high: float | None
    n: tuple[int, int]
    method: str
    p: float | None = None
    std: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval; None when there is no interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def clear(self) -> bool | None:
        """Whether the interval leaves out zero; None when there is no interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 0 <= self.high


def difference(
    first: Mapping[int, float],
    second: Mapping[int, float],
    same_noise: bool,
    confidence: float = CONFIDENCE,
) -> Difference:
    """Return the difference of two models under one corruption, with its interval.

    Args:
        first: repeat -> score of the first model.
        second: repeat -> score of the second model.
        same_noise: both models saw the same noise in the repeats of the same number (same seed):
            then repeats are paired, which removes the noise they have in common.
        confidence: of the interval.
    """
    if not first or not second:
        raise ValueError('a difference needs a measurement of both models')
    both = sorted(first.keys() & second.keys())
    if same_noise and len(both) >= 2:
        pairs = summarize([first[k] - second[k] for k in both], confidence)
        n, std = (len(both), len(both)), pairs.std or 0.0
        p = t_test(pairs.mean, std / math.sqrt(len(both)), len(both) - 1)
        return Difference(pairs.mean, pairs.low, pairs.high, n, 'paired', p, std)
    a, b = (np.asarray(list(side.values()), dtype=np.float64) for side in (first, second))
    mean, n = float(a.mean() - b.mean()), (len(a), len(b))
    if min(n) < 2:
        return Difference(mean, None, None, n, 'single')
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = sum(parts)
    std = math.sqrt(a.var(ddof=1) + b.var(ddof=1))
    half, freedom = 0.0, 1.0
    if error > 0:  # without any spread the degrees of freedom are 0 / 0
        freedom = error**2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
        half = standard_errors(confidence, freedom) * math.sqrt(error)
    p = t_test(mean, math.sqrt(error), freedom)
    return Difference(mean, mean - half, mean + half, n, 'Welch', p, std)
