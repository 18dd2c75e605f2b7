"""Already built models, loaders and metrics, described as in a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.evaluator import BaseMetric, Evaluator
from torch import nn
from torch.utils.data import DataLoader

from ..config.loading import load_config
from ..errors import UserError
from ..fileio.digests import value_digest

_SCOPES = ('mmseg', 'mmdet', 'mmpretrain')
_LOADER_SETTINGS = ('num_workers', 'pin_memory', 'prefetch_factor', 'timeout', 'collate_fn')


def config_of(model: nn.Module) -> Config:
    """Return the config that a built model carries, or a description of it.

    ``init_model`` of mmseg and ``init_detector`` of mmdet leave the config in ``model.cfg``.
    """
    if isinstance(getattr(model, 'cfg', None), Config):
        return load_config(model.cfg)
    name = type(model).__name__
    if not hasattr(model, 'test_step'):
        raise UserError(
            f'`model_or_config`: {name} is not a model of mmseg, mmdet, mmpretrain or mmengine.'
        )
    # A class of the caller's own derives from one of theirs.
    families = [kind.__module__.partition('.')[0] for kind in type(model).__mro__]
    content = {
        'model': {'type': name, 'built': value_digest(repr(model))},
        'default_scope': next((one for one in families if one in _SCOPES), 'mmengine'),
        'test_cfg': {},
    }
    return Config(content, cfg_text=f'# {name}', filename=name)


def describe_data(config: Config, data_loader: DataLoader | Mapping[str, Any] | None) -> None:
    """Let ``config.test_dataloader`` describe the test data: a loader, or the config of one."""
    if data_loader is None:
        return
    if isinstance(data_loader, Mapping):
        whole = 'dataset' in data_loader and 'type' not in data_loader
        config.test_dataloader = data_loader if whole else {'dataset': data_loader}
        return
    if not isinstance(data_loader, DataLoader):
        raise UserError(
            f'`data_loader`: {type(data_loader).__name__} is neither a torch DataLoader nor a '
            'config of one.'
        )
    dataset: Any = data_loader.dataset
    if not hasattr(dataset, 'get_data_info') or not hasattr(dataset, 'metainfo'):
        raise UserError(
            f'`data_loader`: its {type(dataset).__name__} is not a data set of mmengine, mmseg, '
            'mmdet or mmpretrain.'
        )
    config.test_dataloader = {
        'batch_size': loader_settings(data_loader)['batch_size'],
        'dataset': {'type': type(dataset).__name__, 'steps': repr(dataset.pipeline)},
    }


def describe_metrics(config: Config, metrics: Any) -> list[BaseMetric] | None:
    """Let ``config.test_evaluator`` name the metrics; return those that are already built."""
    if metrics is None:
        return None
    metrics = metrics.metrics if isinstance(metrics, Evaluator) else metrics
    given = list(metrics) if isinstance(metrics, Sequence) else [metrics]
    config.test_evaluator = [
        dict(one) if isinstance(one, Mapping) else {'type': type(one).__name__} for one in given
    ]
    built = [one for one in given if isinstance(one, BaseMetric)]
    if built and len(built) < len(given):
        raise UserError('`metrics`: give configs, or built metrics, but not both.')
    return built or None


def loader_settings(loader: DataLoader) -> dict[str, Any]:
    """Return the settings of a built loader that matter to another one for the same images."""
    size = loader.batch_size or getattr(loader.batch_sampler, 'batch_size', 1)
    return {'batch_size': size} | {name: getattr(loader, name) for name in _LOADER_SETTINGS}
