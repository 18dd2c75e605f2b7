"""The t-interval: what stands after every ±."""

from __future__ import annotations

from scipy import stats


def standard_errors(confidence: float, freedom: float) -> float:
    """Return how many standard errors reach to the end of a two-sided interval of a mean."""
    return float(stats.t.ppf((1 + confidence) / 2, freedom))
