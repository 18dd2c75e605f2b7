"""Parts of a config that must be dicts, before anything looks into them."""

from __future__ import annotations

from mmengine.config import Config

from ..errors import UserError

_DICTS = (
    'model', 'data_preprocessor', 'train_dataloader', 'val_dataloader', 'test_dataloader',
    'train_cfg', 'val_cfg', 'test_cfg', 'val_evaluator', 'test_evaluator', 'optim_wrapper',
    'default_hooks', 'env_cfg', 'visualizer', 'log_processor', 'randomness', 'auto_scale_lr',
)  # fmt: skip


def require_dicts(config: Config, name: str) -> None:
    """Refuse tuples and single values where a dict must be; lists and objects have their uses."""
    for key in _DICTS:
        value = config.get(key)
        if value and isinstance(value, (tuple, str, int, float)):
            comma = isinstance(value, tuple) and len(value) == 1
            advice = ': remove the comma after its last bracket' if comma else ''
            kind = type(value).__name__
            raise UserError(f'config {name}: {key} must be a dict, but is of type {kind}{advice}.')
