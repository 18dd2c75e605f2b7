"""Errors under corruption relative to those of a reference model, and the worst case.

All functions are pure: numbers in, numbers out. Scores are in per cent; an error is 100 - score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CorruptionError:
    """Mean corruption error, as in ImageNet-C (Hendrycks and Dietterich, 2019).

    Attributes:
        mce: mean over corruptions of the errors of the model, summed over levels, divided by those
            of the reference; in per cent. Below 100 is better than the reference.
        relative_mce: the same with the error on clean images taken from each; None where the
            reference loses nothing, or clean images were not measured.
        by_corruption: corruption -> its part of ``mce``.
        levels: how many levels there are in all.
    """

    mce: float
    relative_mce: float | None
    by_corruption: dict[str, float]
    levels: int


def corruption_error(
    scores: Mapping[str, Mapping[str, float]],
    reference: Mapping[str, Mapping[str, float]],
    clean: float | None = None,
    clean_reference: float | None = None,
) -> CorruptionError | None:
    """Return mCE and relative mCE; None where no corruption was measured for both.

    Args:
        scores: Corruption -> level -> score of the model. Levels that the reference lacks do not
            count.
        reference: The same of the reference.
        clean: Score of the model on clean images.
        clean_reference: That of the reference.
    """
    ratios: dict[str, float] = {}
    relative: list[float | None] = []
    levels = 0
    for name, row in scores.items():
        both = [level for level in row if level in reference.get(name, {})]
        ours = sum(100 - row[level] for level in both)
        theirs = sum(100 - reference[name][level] for level in both)
        if not both or theirs <= 0:
            continue
        levels += len(both)
        ratios[name] = float(100 * ours / theirs)
        if clean is not None and clean_reference is not None:
            lost = theirs - len(both) * (100 - clean_reference)
            own = ours - len(both) * (100 - clean)
            relative.append(float(100 * own / lost) if lost > 0 else None)
    if not ratios:
        return None
    known = [one for one in relative if one is not None]
    complete = len(known) == len(ratios)  # a mean over other corruptions would be another figure
    mean = float(np.mean(known)) if complete else None
    return CorruptionError(float(np.mean(list(ratios.values()))), mean, ratios, levels)


def worst_case(scores: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the cell with the lowest score, and the score; None without any."""
    if not scores:
        return None
    key = min(scores, key=lambda one: scores[one])
    return key, float(scores[key])
