"""Scores of a classifier: the same as mmpretrain's Accuracy, by class and by image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def accuracy_by_image(metric: Any, results: Sequence[dict]) -> dict[int, np.ndarray]:
    """Return one percentage per image for each k: 100 hit, 0 missed, NaN without a true label."""
    if hasattr(metric, 'hits'):  # several true labels, or fewer classes
        found = metric.hits(results)
    else:
        scores = torch.stack([result['pred_score'] for result in results]).float()
        truth = torch.cat([result['gt_label'] for result in results])
        order = scores.topk(max(metric.topk), dim=1).indices
        found = {k: (order[:, :k] == truth[:, None]).any(dim=1).tolist() for k in metric.topk}
    return {k: 100 * np.asarray(values, dtype=np.float64) for k, values in found.items()}


def accuracy_by_class(
    metric: Any, results: Sequence[dict], values: np.ndarray
) -> tuple[list[str], list[float]]:
    """Return the names and mean values of the classes that occur, by the label of the data set."""
    labels = np.asarray([int(result['gt_label'][0]) for result in results])
    names = (metric.dataset_meta or {}).get('classes') or ()
    present = sorted(set(labels.tolist()))
    means = []
    for label in present:
        known = values[labels == label]
        known = known[~np.isnan(known)]
        means.append(float(known.mean()) if known.size else float('nan'))
    return [str(names[n]) if n < len(names) else f'class {n}' for n in present], means
