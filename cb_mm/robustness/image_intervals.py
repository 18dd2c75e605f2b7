"""Intervals over images: what a score would be on other images of the same kind.

Repeats measure the noise of a corruption, and clean images have none; but a test set is a sample
too. The images are resampled, with replacement, many times, and the score is computed for each
draw. Two models are scored on the same draws, which removes what images have in common.

This is possible where the score of a draw follows from its images: mIoU (from the areas of each
image) and accuracy. COCO's AP is a ranking of all detections of all images together; it has no
parts per image that could be summed, so it gets no interval here.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .image_scores import ImageScores, read_image_scores
from .statistics import CONFIDENCE

RESAMPLES = 1000
#: To be printed wherever such an interval is.
WHAT_IMAGES_MEASURE = (
    f'Intervals over images: percentile bootstrap, {RESAMPLES} draws of the test images with '
    'replacement (the same draws for both models). They say how much the choice of test images '
    'matters, not the training; with fewer than about 30 images they are too narrow.'
)
WHY_AP_HAS_NONE = (
    'AP ranks the detections of all images together. It is not a sum over images, so it has no '
    'interval over images.'
)
#: Numbers of counts in memory at once.
_AT_ONCE = 1 << 22

#: How often each image is in each draw (draws, images) -> the score of each draw.
Statistic = Callable[[np.ndarray], np.ndarray]


def statistic_of(scores: ImageScores, metric: str) -> Statistic | None:
    """Return how a metric follows from images; None where it does not."""
    if metric == 'mIoU' and scores.areas:
        class_iou = class_iou_of(scores)
        return lambda counts: _known_mean(class_iou(counts), axis=1)
    if re.fullmatch(r'top\d+', metric) and metric in scores.metrics:
        values = scores.metrics[metric]
        known = ~np.isnan(values)
        filled = np.where(known, values, 0.0)

        def mean(counts: np.ndarray) -> np.ndarray:
            with np.errstate(divide='ignore', invalid='ignore'):
                return (counts @ filled) / (counts @ known.astype(np.float64))

        return mean
    return None


def class_iou_of(scores: ImageScores) -> Statistic:
    """Return how the IoU of each class follows from images: (draws, classes), NaN for none."""
    intersect, union = (scores.areas[one].astype(np.float64) for one in ('intersect', 'union'))

    def class_iou(counts: np.ndarray) -> np.ndarray:
        with np.errstate(divide='ignore', invalid='ignore'):
            return 100 * (counts @ intersect) / (counts @ union)

    return class_iou


def _known_mean(values: Any, axis: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)  # a draw without any class
        return np.nanmean(values, axis=axis)


def bootstrap_images(
    statistic: Statistic, images: int, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Return both ends of the interval; None where it does not exist.

    Args:
        statistic: Score of a draw.
        images: How many there are.
        seed: Of the draws; same seed, same interval.
        resamples: How many draws.
    """
    return None if images < 2 else interval(resample(statistic, images, seed, resamples))


def interval(draws: np.ndarray) -> tuple[float, float] | None:
    """Return both ends of the middle 95 % of draws; None where a draw has no score."""
    if not draws.size:
        return None
    ends = np.percentile(draws, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    low, high = map(float, ends)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def resample(
    statistic: Statistic, images: int, seed: int = 0, resamples: int = RESAMPLES
) -> np.ndarray:
    """Return the scores of draws with replacement, (draws) or (draws, classes)."""
    from scipy.stats import bootstrap  # here: importing cb_mm need not wait for it

    def on_numbers(numbers: np.ndarray, axis: int = -1) -> np.ndarray:
        rows = np.atleast_2d(numbers)
        counts = np.stack([np.bincount(row, minlength=images) for row in rows])
        values = np.moveaxis(statistic(counts.astype(np.float64)), 0, -1)  # scipy's order
        return values if numbers.ndim > 1 else values[..., 0]

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # scipy warns of scores that do not vary
        found = bootstrap(
            (np.arange(images),),
            on_numbers,
            n_resamples=resamples,
            batch=max(_AT_ONCE // images, 1),
            vectorized=True,
            axis=-1,
            method='percentile',
            random_state=np.random.default_rng(seed),
        ).bootstrap_distribution
    return np.moveaxis(found, -1, 0)


class PassScores:
    """The image scores of the passes of one test, read once each."""

    def __init__(self, folder: str | Path | None) -> None:
        self.folder = folder
        self._read: dict[str, ImageScores | None] = {}

    def of(self, key: str) -> ImageScores | None:
        """Return those of one pass; None where there are none."""
        if self.folder is None:
            return None
        if key not in self._read:
            self._read = {key: read_image_scores(self.folder, key)}  # one pass in memory
        return self._read[key]

    def statistic(self, cell: Mapping[str, Any], metric: str) -> tuple[Statistic, int] | None:
        """Return the mean of a metric over the repeats of a cell, as it follows from images."""
        parts: list[Statistic] = []
        images = 0
        for scores, value in zip(
            self._of_cell(cell), cell['metrics'][metric]['values'], strict=True
        ):
            part = None if scores is None else statistic_of(scores, metric)
            if part is None or scores is None or value is None:
                return None
            images = len(scores.names)
            # A metric with settings of its own (nan_to_num, say) is another function of images.
            if not math.isclose(part(np.ones((1, images)))[0], value, rel_tol=1e-6, abs_tol=1e-6):
                return None
            parts.append(part)
        return lambda counts: np.mean([part(counts) for part in parts], axis=0), images

    def class_statistic(self, cell: Mapping[str, Any]) -> Statistic | None:
        """Return the IoU of each class over the repeats of a cell, as it follows from images."""
        parts = []
        for scores in self._of_cell(cell):
            if scores is None or not scores.areas:
                return None
            parts.append(class_iou_of(scores))
        return lambda counts: _known_mean([part(counts) for part in parts], axis=0)

    def _of_cell(self, cell: Mapping[str, Any]) -> Iterator[ImageScores | None]:
        for repeat in cell['repeats']:
            yield self.of(f'{cell["key"]}_{repeat}' if cell['random'] else cell['key'])

    @property
    def names(self) -> list[str] | None:
        """The images of the pass that was read last."""
        last = next(iter(self._read.values()), None)
        return None if last is None else last.names


def add_image_intervals(results: dict[str, Any], folder: Path) -> None:
    """Add to every cell what the choice of images does to its headline figures."""
    passes, seed, found = PassScores(folder), results['identity']['seed'], False
    for cell in results['cells']:
        for name in results['headline']:
            made = passes.statistic(cell, name)
            ends = bootstrap_images(*made, seed) if made else None
            cell['metrics'][name]['over_images'] = ends and {'low': ends[0], 'high': ends[1]}
            found = found or ends is not None
    if found:
        results['notes'].append(WHAT_IMAGES_MEASURE)
    if any(name.endswith('_mAP') for name in results['headline']):
        results['notes'].append(WHY_AP_HAS_NONE)
