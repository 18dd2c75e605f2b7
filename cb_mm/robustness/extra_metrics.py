"""Metrics that a test adds on request: calibration, and the IoU of edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS
from torch import nn

from ..errors import UserError
from ..evaluation.calibration import CalibrationMetric, outputs_of
from .panoptic import do_without_panopticapi

#: Name on the command line -> class.
EXTRA_METRICS = {'calibration': 'CalibrationMetric', 'boundary': 'BoundaryIoUMetric'}


def split_names(metrics: Any) -> tuple[list[str], Any]:
    """Return the names among metrics, and the rest of them; None for no rest."""
    if metrics is None or isinstance(metrics, str):
        return check_names([metrics] if metrics else []), None
    if isinstance(metrics, Mapping) or not isinstance(metrics, Sequence):
        return [], metrics
    rest = [one for one in metrics if not isinstance(one, str)]
    return check_names(one for one in metrics if isinstance(one, str)), rest or None


def check_names(names: Iterable[str]) -> list[str]:
    """Return the names, each once; refuse unknown ones."""
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in EXTRA_METRICS:
            known = ', '.join(EXTRA_METRICS)
            raise UserError(f'`metrics`: {name!r} is not known; choose from {known}.')
    return names


def with_extra_metrics(given: Sequence[Any], names: Iterable[str]) -> list[Any]:
    """Return the metrics of a config and the configs of those that are added.

    Args:
        given: Configs, or metrics that are built already.
        names: Keys of `EXTRA_METRICS`. A metric that is there already is not added again.
    """
    kinds = {_kind(one) for one in given}
    added = []
    for name in check_names(names):
        kind = EXTRA_METRICS[name]
        if name == 'calibration' and 'LabelSetAccuracy' in kinds:
            raise UserError(
                '`metrics` calibration needs one true class per image among all classes of the '
                'model. The labels of ImageNet-ReaL and ImageNet-A are of another kind.'
            )
        if kind not in kinds:
            ignored = next((i for i in map(_ignored, given) if i is not None), 255)
            added.append({'type': kind, 'ignore_index': ignored})
    return [*given, *added]


def add_extra_metrics(
    config: Config, built: Sequence[BaseMetric] | None, names: Sequence[str]
) -> list[BaseMetric] | None:
    """Add metrics to ``test_evaluator``, which identifies a test, and to those that are built."""
    given = metric_configs(config)
    wanted = with_extra_metrics(do_without_panopticapi(config, given), names)
    if wanted != given:
        config.test_evaluator = wanted
    if built is None:
        return None
    every = with_extra_metrics(built, names)
    return [one if isinstance(one, BaseMetric) else METRICS.build(one) for one in every]


def metric_configs(config: Config) -> list:
    """Return the metrics of ``test_evaluator``: one, a list, or an evaluator around a list."""
    given = config.get('test_evaluator')
    if isinstance(given, dict) and 'metrics' in given:
        given = given['metrics']
    if isinstance(given, dict):
        given = [given]
    if not given or not config.get('test_dataloader'):
        raise UserError(
            f'config {config.filename}: it has no test_dataloader and test_evaluator, so there is '
            'nothing to test on.'
        )
    return list(given)


def fit_to_model(metrics: Iterable[BaseMetric], model: nn.Module) -> None:
    """Tell calibration what the model's outputs are, unless the config says it."""
    for metric in metrics:
        if isinstance(metric, CalibrationMetric) and metric.outputs is None:
            metric.outputs = outputs_of(model)


def _kind(metric: Any) -> str:
    kind = metric.get('type') if isinstance(metric, Mapping) else type(metric)
    return str(getattr(kind, '__name__', kind)).split('.')[-1]


def _ignored(metric: Any) -> int | None:
    if isinstance(metric, Mapping):
        return metric.get('ignore_index')
    return getattr(metric, 'ignore_index', None)
