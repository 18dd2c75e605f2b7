"""The loss of a classifier on the validation images, as a metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS


@METRICS.register_module()
class ValidationLoss(BaseMetric):
    """Mean cross-entropy of the true labels: ``validation/cross_entropy``.

    (A name with 'loss' would be averaged over several validations by mmengine's log.)
    It is plain cross-entropy, whatever the training loss is: no label smoothing, no mixed labels.
    `ReduceOnPlateauLR` can follow it (``monitor='validation/cross_entropy'``), and
    ``tools/plot_curves.py`` draws it.

    Args:
        **kwargs: As in mmengine's BaseMetric.
    """

    default_prefix = 'validation'

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the loss of every image of a batch."""
        for sample in data_samples:
            score = sample['pred_score'].double().cpu()
            # A class that has probability zero in float32 costs as much as the smallest number.
            likely = score.clamp_min(torch.finfo(torch.float32).tiny)
            label = sample['gt_label'].cpu().long()
            self.results.append(float(-likely[label].log().mean()))

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Return the mean over all images."""
        return {'cross_entropy': sum(results) / len(results)}
