"""Boundary IoU: the intersection over union of the edges of objects alone.

In mIoU the inside of large objects outweighs their outline. Here only the pixels of truth and
prediction within a small distance of their own outline count (Cheng et al., "Boundary IoU", 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from mmengine.registry import METRICS

from ..errors import UserError
from .streaming import Figures, State, StreamingMetric


@METRICS.register_module()
class BoundaryIoUMetric(StreamingMetric):
    """Mean boundary IoU of a semantic segmentation, ``boundary_mIoU`` in per cent.

    As in mIoU, areas are summed over all images, and the mean is over the classes that occur. The
    edge of the image counts as an outline, as in the paper. Ignored pixels count for nothing and
    neither make an outline nor hide one.

    Args:
        dilation: Width of the band as a share of the diagonal of the image.
        ignore_index: Label of pixels that do not count.
        collect_device: As in mmengine.
        prefix: As in mmengine.
    """

    def __init__(
        self,
        dilation: float = 0.02,
        ignore_index: int = 255,
        collect_device: str = 'cpu',
        prefix: str | None = None,
    ) -> None:
        if not 0 < dilation < 1:
            raise UserError(f'BoundaryIoUMetric: dilation={dilation} is not between 0 and 1.')
        super().__init__(collect_device, prefix)
        self.dilation, self.ignore_index = dilation, ignore_index

    def measure(self, sample: Mapping[str, Any]) -> State:
        """Return the intersection and the union of the bands of every class in one image."""
        if 'pred_sem_seg' not in sample or 'gt_sem_seg' not in sample:
            raise UserError(
                'BoundaryIoUMetric needs a semantic segmentation. Instance masks have another '
                'measure, boundary AP, which is not computed here.'
            )
        classes = len(self.dataset_meta['classes'])
        predicted, truth = (
            sample[name]['data'].squeeze().cpu().numpy().astype(np.int64)
            for name in ('pred_sem_seg', 'gt_sem_seg')
        )
        known = (truth != self.ignore_index) & (truth >= 0) & (truth < classes)
        width = band_width(truth.shape, self.dilation)
        in_truth = known & boundary_band(truth, known, width)
        in_predicted = known & boundary_band(predicted, known, width)
        both = in_truth & in_predicted & (truth == predicted)
        intersect, true, found = (
            np.bincount(labels, minlength=classes)
            for labels in (truth[both], truth[in_truth], predicted[in_predicted])
        )
        return {'intersect': intersect, 'union': true + found - intersect}

    def figures(self, state: State) -> Figures:
        """Return the mean over classes, and each class."""
        if not state or not state['union'].any():
            raise UserError('BoundaryIoUMetric: no pixel has a true class.')
        with np.errstate(invalid='ignore'):
            iou = state['intersect'] / state['union'] * 100
        return Figures({'boundary_mIoU': float(np.nanmean(iou))}, {'boundary_IoU': iou})


def band_width(shape: tuple[int, ...], dilation: float) -> int:
    """Return how many pixels wide the band is in an image of this size; at least 1."""
    return max(round(dilation * math.hypot(*shape)), 1)


def boundary_band(labels: np.ndarray, known: np.ndarray, width: int) -> np.ndarray:
    """Return which pixels are at most ``width`` pixels from another class or from the edge.

    One minimum and one maximum over a square find this for all classes at once: inside an object
    both are its own label. This equals ``width`` erosions of every mask by 3 × 3 pixels.

    Args:
        labels: (H, W), from 0 to 65533.
        known: (H, W), False for pixels that are to be overlooked.
        width: In pixels.
    """
    shifted = (labels + 1).astype(np.uint16)
    square = np.ones((2 * width + 1, 2 * width + 1), np.uint8)
    lowest = cv2.erode(
        np.where(known, shifted, np.uint16(65535)), square,
        borderType=cv2.BORDER_CONSTANT, borderValue=0,
    )  # fmt: skip
    highest = cv2.dilate(
        np.where(known, shifted, np.uint16(0)), square,
        borderType=cv2.BORDER_CONSTANT, borderValue=0,
    )  # fmt: skip
    return (lowest != shifted) | (highest != shifted)
