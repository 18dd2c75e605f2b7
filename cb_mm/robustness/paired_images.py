"""Differences of two models over images: both are scored on the same draws of the test images.

This removes what easy and hard images have in common. See `image_intervals` for the draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .image_intervals import RESAMPLES, PassScores, Statistic, interval, resample
from .significance import t_test

#: Share of the draws in which a class must occur, for an interval of its difference.
_OFTEN = 0.9


def add_paired_intervals(
    comparison: dict[str, Any],
    results: Mapping[str, Any],
    other: Mapping[str, Any],
    folder: Path,
) -> None:
    """Add the paired interval over images to every row of a comparison, and by class for mIoU."""
    ours, theirs = PassScores(folder), PassScores(other.get('folder'))
    mine, its = ({cell['key']: cell for cell in one['cells']} for one in (results, other))
    seed = results['identity']['seed']
    for row in comparison['rows']:
        cells = mine[row['key']], its[row['key']]
        row['over_images'] = row['per_class'] = None
        both = _both(ours, theirs, cells, row['metric'])
        if both is None:
            continue
        gap, images = both
        draws = resample(gap, images, seed)
        row['over_images'] = _summary(draws, row['difference']['mean'], images)
        if row['metric'] == 'mIoU':
            row['per_class'] = _by_class(ours, theirs, cells, images, seed)


def _both(
    ours: PassScores, theirs: PassScores, cells: tuple[Mapping, Mapping], metric: str
) -> tuple[Statistic, int] | None:
    """Return the difference as it follows from images, where both tests have the same ones."""
    first, second = ours.statistic(cells[0], metric), theirs.statistic(cells[1], metric)
    if not first or not second or first[1] != second[1] or first[1] < 2:
        return None
    return (_minus(first[0], second[0]), first[1]) if ours.names == theirs.names else None


def _by_class(
    ours: PassScores, theirs: PassScores, cells: tuple[Mapping, Mapping], images: int, seed: int
) -> dict[str, dict[str, Any]] | None:
    """Return for each class its scores, their difference, the interval of it and p."""
    first, second = ours.class_statistic(cells[0]), theirs.class_statistic(cells[1])
    sides = [cell['per_class'].get('IoU') or {} for cell in cells]
    if first is None or second is None or list(sides[0]) != list(sides[1]):
        return None
    draws = resample(_minus(first, second), images, seed)
    if draws.shape[1] != len(sides[0]):
        return None
    found = {}
    for name, values in zip(sides[0], draws.T, strict=True):
        this, that = sides[0][name], sides[1][name]
        gap = None if this is None or that is None else this - that
        gap = gap if gap is not None and np.isfinite(gap) else None
        known = values[np.isfinite(values)]
        over = None
        if gap is not None and len(known) >= _OFTEN * len(values):
            over = _summary(known, gap, images)
        over = over or {'low': None, 'high': None, 'p': None}
        interval = {key: over[key] for key in ('low', 'high', 'p')}
        found[name] = {'this': this, 'other': that, 'difference': gap, **interval}
    return found


def _summary(draws: np.ndarray, mean: float, images: int) -> dict[str, Any] | None:
    """Return the interval of a difference, its standard error and p; None where there is none."""
    ends = interval(draws)
    if ends is None:
        return None
    # By the error of the draws, not by counting those beyond zero: 1,000 draws cannot tell 0.001
    # from less, and a long suite asks for less.
    error = float(draws.std(ddof=1))
    return {
        'low': ends[0],
        'high': ends[1],
        'clear': not ends[0] <= 0 <= ends[1],
        'resamples': RESAMPLES,
        'error': error,
        'p': t_test(mean, error, images - 1),
    }


def _minus(first: Statistic, second: Statistic) -> Statistic:
    return lambda counts: first(counts) - second(counts)
