"""The unit of an OpenMMLab metric's figures: known by its class, never guessed."""

from __future__ import annotations

import math
from typing import Any

PERCENT = '%'

#: Classes whose ``compute_metrics`` returns fractions from 0 to 1.
_FRACTIONS = {
    'mmdet.CityScapesMetric', 'mmdet.CocoMetric', 'mmdet.CocoOccludedSeparatedMetric',
    'mmdet.CrowdHumanMetric', 'mmdet.FasterCocoMetric', 'mmdet.LVISMetric', 'mmdet.OVCocoMetric',
    'mmdet.OpenImagesMetric', 'mmdet.ReIDMetrics', 'mmdet.VOCMetric', 'mmseg.CityscapesMetric',
}  # fmt: skip
#: Classes whose ``compute_metrics`` returns per cent.
_PERCENT = {
    'cb_mm.VQAv2Accuracy', 'mmdet.CocoPanopticMetric', 'mmdet.SemSegMetric', 'mmpretrain.Accuracy',
    'mmpretrain.AveragePrecision', 'mmpretrain.MultiLabelMetric',
    'mmpretrain.RetrievalAveragePrecision', 'mmpretrain.RetrievalRecall',
    'mmpretrain.SingleLabelMetric', 'mmpretrain.VQAAcc', 'mmseg.IoUMetric',
}  # fmt: skip


def in_percent(metric: Any, figures: dict[str, float]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return a metric's figures in per cent where the unit is known, and the unit of each.

    Args:
        metric: as built from a config.
        figures: what its ``compute_metrics`` returned.

    Returns:
        name -> value, and name -> ``'%'``, or None where the unit is not known: a subclass that
        computes other figures may have any.
    """
    kind = _computing_class(metric)
    factor = 100.0 if kind in _FRACTIONS else 1.0
    known = kind in _FRACTIONS or kind in _PERCENT
    values, units = {}, {}
    for name, value in figures.items():
        # The number of samples of a class, or of questions without public answers.
        counted = any(word in name.split('/')[-1] for word in ('support', 'questions'))
        units[name] = PERCENT if known and not counted else None
        values[name] = value * factor if units[name] else value
        if kind in _FRACTIONS and value == -1:  # of COCO: there is no such object
            values[name] = math.nan
    return values, units


def _computing_class(metric: Any) -> str:
    """Return the class that computes the figures, as 'package.Class'."""
    for kind in type(metric).__mro__:
        if 'compute_metrics' in vars(kind):
            return f'{kind.__module__.partition(".")[0]}.{kind.__name__}'
    return ''
