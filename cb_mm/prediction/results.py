"""What a model found in one image: plain arrays, whichever package the model is from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

#: How many classes of a classifier are reported.
BEST = 5


@dataclass(frozen=True)
class Segmentation:
    """A class for every pixel.

    Attributes:
        labels: Class numbers from 0 (H, W).
    """

    labels: np.ndarray
    kind = 'segmentation'

    def pixels(self) -> dict[int, int]:
        """Return how many pixels each class that occurs has."""
        numbers, counts = np.unique(self.labels, return_counts=True)
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class Detections:
    """Objects, the surest first.

    Attributes:
        boxes: Left, top, right and bottom of each, in pixels (N, 4).
        scores: From 0 to 1 (N).
        labels: Class numbers from 0 (N).
        masks: Their pixels (N, H, W); None for a model without masks.
        scored: Whether the scores say anything; those of an annotation do not.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None = None
    scored: bool = True
    kind = 'detection'

    def above(self, score: float) -> Detections:
        """Return those with at least this score."""
        kept = self.scores >= score
        masks = None if self.masks is None else self.masks[kept]
        return replace(
            self,
            boxes=self.boxes[kept],
            scores=self.scores[kept],
            labels=self.labels[kept],
            masks=masks,
        )


@dataclass(frozen=True)
class Ranking:
    """The classes of a whole image, the most likely first.

    Attributes:
        labels: Class numbers from 0 (K).
        scores: Their probabilities (K).
    """

    labels: np.ndarray
    scores: np.ndarray
    kind = 'classification'


Result: TypeAlias = Segmentation | Detections | Ranking


def result_of(sample: Any) -> Result:
    """Return the prediction in a data sample of mmseg, mmdet or mmpretrain.

    Raises:
        TypeError: It has none of the three kinds.
    """
    if 'pred_sem_seg' in sample:
        return Segmentation(_array(sample.pred_sem_seg.data).squeeze(0))
    if 'pred_instances' in sample:
        return _detections(sample.pred_instances)
    if 'pred_score' in sample:
        scores = _array(sample.pred_score).ravel()
        order = np.argsort(-scores, kind='stable')[:BEST]
        return Ranking(order, scores[order])
    raise TypeError(f'a prediction with {", ".join(sample.keys()) or "nothing"}')


def truth_of(sample: Any) -> Result | None:
    """Return the annotation in a data sample, at the size of its prediction; None without one."""
    if 'gt_sem_seg' in sample:
        return Segmentation(_array(sample.gt_sem_seg.data).squeeze(0))
    if 'gt_instances' in sample and 'bboxes' in sample.gt_instances:
        return _detections(sample.gt_instances)
    if 'gt_label' in sample:
        labels = _array(sample.gt_label).ravel()
        return Ranking(labels, np.ones(len(labels)))
    return None


def _detections(instances: Any) -> Detections:
    boxes = instances.bboxes
    boxes = _array(getattr(boxes, 'tensor', boxes)).reshape(-1, 4)
    labels = _array(instances.labels)
    scores = _array(instances.scores) if 'scores' in instances else np.ones(len(labels))
    masks = None
    if 'masks' in instances:
        masks = instances.masks
        # Annotations are mmdet's bitmaps or polygons, predictions tensors.
        masks = masks.to_ndarray() if hasattr(masks, 'to_ndarray') else _array(masks)
        masks = masks.astype(bool)
    order = np.argsort(-scores, kind='stable')
    masks = None if masks is None else masks[order]
    return Detections(boxes[order], scores[order], labels[order], masks, 'scores' in instances)


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if hasattr(values, 'detach') else np.asarray(values)
