"""One number of classes for a whole classifier config, instead of three."""

from __future__ import annotations

from mmengine.config import Config


def follow_class_count(config: Config) -> None:
    """Let the rest of a classifier's config follow ``model.head.num_classes``.

    The labels that Mixup and CutMix blend get as many entries, and a top-k that needs more classes
    is dropped. Other configs are unchanged.
    """
    model = config.get('model') or {}
    preprocessor = model.get('data_preprocessor') or {}
    count = (model.get('head') or {}).get('num_classes')
    if count is None or 'num_classes' not in preprocessor:
        return
    preprocessor['num_classes'] = count
    for split in ('val', 'test'):
        metrics = config.get(f'{split}_evaluator')
        for metric in metrics if isinstance(metrics, (list, tuple)) else [metrics]:
            if metric and isinstance(metric.get('topk'), (list, tuple)):
                metric['topk'] = tuple(k for k in metric['topk'] if k <= count) or (1,)
