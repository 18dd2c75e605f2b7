"""Panoptic models where panopticapi, which is not on PyPI, is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from mmengine.config import Config

from ..errors import UserError

_LOADER, _METRIC = 'LoadPanopticAnnotations', 'CocoPanopticMetric'
_INSTALL = 'pip install git+https://github.com/cocodataset/panopticapi.git'


def do_without_panopticapi(config: Config, metrics: list[Any]) -> list[Any]:
    """Return the metrics with cb_mm's own panoptic quality in place of mmdet's.

    mmdet's metric, and its loader of panoptic truth, cannot be built without panopticapi. The
    metric reads the truth itself, so that the loader has no use in a test and is taken out of the
    pipeline. Where panopticapi is installed, nothing changes.
    """
    kinds = [_kind(one) for one in metrics]
    if _METRIC not in kinds or find_spec('panopticapi') is not None:
        return metrics
    pipeline = config.test_dataloader.get('dataset', {}).get('pipeline')
    if pipeline:
        config.test_dataloader.dataset.pipeline = [s for s in pipeline if _kind(s) != _LOADER]
    return [_own(one) if _kind(one) == _METRIC else one for one in metrics]


def _own(metric: dict[str, Any]) -> dict[str, Any]:
    names = ('ann_file', 'seg_prefix')
    if metric.get('format_only') or metric.get('outfile_prefix'):
        raise UserError(f'{_METRIC}: writing panoptic results needs panopticapi: {_INSTALL}')
    if not all(metric.get(name) for name in names):
        raise UserError(
            f'{_METRIC} without ann_file and seg_prefix needs panopticapi: {_INSTALL}; or set both.'
        )
    kept = {name: metric[name] for name in (*names, 'prefix') if metric.get(name)}
    return {'type': 'PanopticQualityMetric', **kept}


def _kind(step: Any) -> str:
    return str(step.get('type') if isinstance(step, dict) else '').split('.')[-1]
