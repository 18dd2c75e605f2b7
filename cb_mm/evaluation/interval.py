"""The t-interval: what stands after every ±."""

from __future__ import annotations


def standard_errors(confidence: float, freedom: float) -> float:
    """Return how many standard errors reach to the end of a two-sided interval of a mean."""
    from scipy import stats  # here: importing cb_mm need not wait for it

    return float(stats.t.ppf((1 + confidence) / 2, freedom))
