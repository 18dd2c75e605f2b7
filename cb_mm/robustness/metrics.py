"""Scores of one job: upstream's own figures, the same without rounding, by class and by image.

mmseg's IoUMetric, mmdet's CocoMetric and mmpretrain's Accuracy evaluate. The first two round: mIoU
to two decimals, AP to three decimals of a fraction, which is coarser than the noise that repeats
measure. So the unrounded values are taken from what they computed.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmengine.dist import all_gather_object
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement

from ..errors import UserError
from ..evaluation.streaming import State, StreamingMetric, merge
from .attacks.pgd import Trace
from .classification import accuracy_by_class, accuracy_by_image
from .coco_evaluation import mean_of_known, precision_by_image, recorded_evaluations
from .units import PERCENT, in_percent

#: Metrics that tables and figures show, if present: name -> common name.
HEADLINES = {
    'mIoU': 'mIoU', 'boundary_mIoU': 'boundary IoU', 'bbox_mAP': 'box AP', 'segm_mAP': 'mask AP',
    'PQ': 'PQ', 'top1': 'top-1',
}  # fmt: skip
_COCO_STATS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')


@dataclass
class Scores:
    """Scores of one job.

    Attributes:
        upstream: exactly what mmseg's or mmdet's testing returns, rounded as it rounds.
        metrics: the same without rounding; in per cent where the unit is known.
        units: metric -> '%', or None where its unit is not known.
        per_class: metric -> class -> value in per cent, NaN where a class does not occur.
        per_image: metric -> one value per image in per cent, in the order of the data set.
        areas: 'intersect' and 'union' -> pixels by image and class, of a segmentation.
        curves: name -> column -> values, for a picture.
        traces: what an attack did, image by image; empty for other jobs.
    """

    upstream: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    units: dict[str, str | None] = field(default_factory=dict)
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    per_image: dict[str, list[float]] = field(default_factory=dict)
    areas: dict[str, np.ndarray] = field(default_factory=dict)
    curves: dict[str, dict[str, list]] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)


class JobEvaluator:
    """Results of one job, collected from all processes and evaluated.

    Args:
        metrics: unused metrics, as built from the config; they are copied.
        dataset_meta: classes and so on, as upstream's test loop hands them over.
        limited: the images are not the whole data set.
    """

    def __init__(self, metrics: Sequence[BaseMetric], dataset_meta: dict, limited: bool) -> None:
        # A shallow copy shares what a metric read when it was built, such as COCO's annotations,
        # but not what it learns from results: CocoMetric keeps the truth of its first evaluation.
        copies = [copy.copy(metric) for metric in metrics]
        for metric in copies:
            metric.results = []
            metric.dataset_meta = dataset_meta
        self.streaming = [one for one in copies if isinstance(one, StreamingMetric)]
        for metric in self.streaming:
            metric.reset()
        self.metrics = [one for one in copies if not isinstance(one, StreamingMetric)]
        self.limited = limited
        self.parts: list[tuple[int, list[list]]] = []

    def process(self, first: int, batch: Any, outputs: Sequence[Any]) -> None:
        """Take in the model's outputs for the batch that begins with image ``first``."""
        samples = [o.to_dict() if isinstance(o, BaseDataElement) else o for o in outputs]
        for metric in [*self.metrics, *self.streaming]:
            metric.process(batch, samples)
        self.parts.append((first, [metric.results for metric in self.metrics]))
        for metric in self.metrics:
            metric.results = []

    def evaluate(self, main: bool) -> Scores | None:
        """Score the images of all processes together, on the main process."""
        parts = [part for parts in all_gather_object(self.parts) for part in parts]
        states = all_gather_object([metric.state() for metric in self.streaming])
        if not main:
            return None
        scores = Scores()
        parts.sort(key=lambda part: part[0])  # the order of the data set, whatever the process
        for place, metric in enumerate(self.metrics):
            results = [result for _, lists in parts for result in lists[place]]
            _evaluate(metric, results, self.limited, scores)
        for metric, of_processes in zip(self.streaming, zip(*states, strict=True), strict=True):
            _add_streaming(metric, merge(of_processes), scores)
        scores.units = {name: scores.units.get(name, PERCENT) for name in scores.metrics}
        return scores


def _add_streaming(metric: StreamingMetric, state: State, scores: Scores) -> None:
    figures, whole = metric.figures(state), f'{metric.prefix}/' if metric.prefix else ''
    prefix = '' if metric.prefix == metric.default_prefix else whole
    for name, value in figures.metrics.items():
        scores.metrics[prefix + name] = scores.upstream[whole + name] = value
    for name, values in figures.per_class.items():
        classes = (metric.dataset_meta or {}).get('classes') or map(str, range(len(values)))
        scores.per_class[prefix + name] = _named(classes, values.tolist())
    scores.curves |= {prefix + name: curve for name, curve in figures.curves.items()}


def _evaluate(metric: BaseMetric, results: list, limited: bool, scores: Scores) -> None:
    if not results:
        raise UserError(
            f'{type(metric).__name__} has nothing to evaluate. Does test_evaluator have '
            'format_only=True? Then it cannot score anything.'
        )
    names = {kind.__name__ for kind in type(metric).__mro__}
    coco = 'CocoMetric' in names
    if coco and limited and metric._coco_api is not None:
        # Skipped images must not count as images without detections.
        metric.img_ids = [truth['img_id'] for truth, _ in results]
    with recorded_evaluations(coco) as evaluations:
        upstream = metric.compute_metrics(results)
    if metric.prefix:
        upstream = {f'{metric.prefix}/{key}': value for key, value in upstream.items()}
    upstream = _numbers(upstream)
    gives_ap = coco and _gives_ap(metric, evaluations)
    if not upstream and not gives_ap:  # AP without any figure: nothing was detected
        raise UserError(
            f'{type(metric).__name__} returns no single-number figure, so there is nothing to put '
            'in a table. Change its options in test_evaluator.'
        )
    scores.upstream.update(upstream)
    if 'IoUMetric' in names:
        _add_iou(metric, results, scores)
    elif gives_ap:
        _add_coco(metric, evaluations, [truth['img_id'] for truth, _ in results], scores)
    elif 'Accuracy' in names and 'pred_score' in results[0]:
        _add_accuracy(metric, results, scores)
    else:
        values, units = in_percent(metric, upstream)
        for name in values:
            short = name.removeprefix('coco/') if coco else name.removeprefix('coco_panoptic/')
            scores.metrics[short], scores.units[short] = values[name], units[name]


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures that are one number each; some metrics also return lists and matrices."""
    found = {}
    for key, value in figures.items():
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            found[key] = float(value)
    return found


def _gives_ap(metric: Any, evaluations: list) -> bool:
    """Return whether CocoMetric itself computed AP; a subclass may have its own code."""
    from mmdet.evaluation import CocoMetric

    own = type(metric).compute_metrics is CocoMetric.compute_metrics
    return bool({'bbox', 'segm'} & set(metric.metrics)) and (bool(evaluations) or own)


def _add_iou(metric: Any, results: list, scores: Scores) -> None:
    """Add unrounded figures by upstream's own arithmetic, on the same sums."""
    areas = [sum(column) for column in zip(*results, strict=True)]
    exact = metric.total_area_to_metrics(*areas, metric.metrics, metric.nan_to_num, metric.beta)
    prefix = f'{metric.prefix}/' if metric.prefix else ''
    for key, values in exact.items():
        name = key if key == 'aAcc' else f'm{key}'
        scores.metrics[prefix + name] = float(np.nanmean(values) * 100)
        if key != 'aAcc':
            percent = (np.asarray(values, np.float64) * 100).tolist()
            scores.per_class[prefix + key] = _named(metric.dataset_meta['classes'], percent)
    # In one image, the classes that occur in the truth or the prediction count.
    image_iou, image_accuracy = [], []
    for intersect, union, _, label in results:
        there = union > 0
        image_iou.append(float((intersect[there] / union[there]).mean() * 100))
        image_accuracy.append(float(intersect.sum() / label.sum() * 100))
    scores.per_image[prefix + 'mIoU'] = image_iou
    scores.per_image[prefix + 'aAcc'] = image_accuracy
    if not prefix:
        columns = dict(zip(('intersect', 'union'), zip(*results, strict=True), strict=False))
        scores.areas = {
            name: np.stack([np.asarray(area) for area in column]).astype(np.int64)
            for name, column in columns.items()
        }


def _add_coco(metric: Any, evaluations: list, ids: list, scores: Scores) -> None:
    prefix = '' if metric.prefix in (None, 'coco') else f'{metric.prefix}/'
    by_type = {one.params.iouType: one for one in evaluations if one.params.useCats}
    for kind in metric.metrics:
        if kind not in ('bbox', 'segm'):
            continue
        name = f'{prefix}{kind}'
        classes = [metric._coco_api.loadCats(one)[0]['name'] for one in metric.cat_ids]
        evaluation = by_type.get(kind)
        if evaluation is None:  # upstream gives up when nothing at all was detected: AP is 0
            scores.metrics.update({f'{name}_{item}': 0.0 for item in _COCO_STATS[:3]})
            # By size too, except for sizes without any object, and we cannot tell which those are.
            scores.metrics.update({f'{name}_{item}': np.nan for item in _COCO_STATS[3:]})
            scores.per_class[f'{name}_AP'] = _named(classes, [0.0] * len(classes))
            scores.per_image[f'{name}_AP'] = [0.0] * len(ids)
            continue
        for item, value in zip(_COCO_STATS, evaluation.stats, strict=False):
            # COCO's -1 says that there is no object of this size.
            scores.metrics[f'{name}_{item}'] = float(value) * 100 if value > -1 else float('nan')
        # precision: IoU threshold x recall x class x size x number of detections
        precision = evaluation.eval['precision'][:, :, :, 0, -1]
        order = list(evaluation.params.catIds)  # sorted, which the classes need not be
        columns = [precision[:, :, order.index(one)] for one in metric.cat_ids]
        scores.per_class[f'{name}_AP'] = _named(classes, map(mean_of_known, columns))
        scores.per_image[f'{name}_AP'] = precision_by_image(evaluation, ids)


def _add_accuracy(metric: Any, results: list, scores: Scores) -> None:
    prefix = '' if metric.prefix in (None, 'accuracy') else f'{metric.prefix}/'
    for k, values in accuracy_by_image(metric, results).items():
        name = f'{prefix}top{k}'
        scores.metrics[name] = float(np.nanmean(values)) if not np.isnan(values).all() else np.nan
        scores.per_image[name] = values.tolist()
        scores.per_class[name] = _named(*accuracy_by_class(metric, results, values))


def _named(names: Iterable[str], values: Iterable[float]) -> dict[str, float]:
    named: dict[str, float] = {}
    for name, value in zip(names, values, strict=True):
        while name in named:  # two classes of one name are still two classes
            name = f'{name}*'
        named[name] = value
    return named
