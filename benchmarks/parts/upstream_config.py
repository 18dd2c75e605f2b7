"""An upstream config, made small: on the embedded scenes, without downloads, for one step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.config import Config

from .upstream_models import Model

CLASSES = {'mmseg': 150, 'mmdet': 80}
LOADERS = {'train_dataloader': 'train', 'val_dataloader': 'val', 'test_dataloader': 'val'}
#: Sizes in pipelines and preprocessors that are squares; (width, height) otherwise.
_SQUARES = ('crop_size', 'size', 'input_size', 'img_size')


def small_config(model: Model, scenes: Path) -> Config:
    """Return the config with all that it is about, on small images of another data set."""
    config = Config.fromfile(model.path)
    _walk(config._cfg_dict, lambda part: _without_weights(part))
    config.load_from = None
    _walk(config.model, lambda part: _with_classes(part, CLASSES[model.library]))
    if model.width:
        _replace(config.model, *model.width)
    smaller = partial(_smaller, side=model.side)
    for name, split in LOADERS.items():
        loader = config[name]
        loader.update(num_workers=0, persistent_workers=False)
        loader.batch_size = 2 if split == 'train' else 1
        loader.pop('prefetch_factor', None)
        _use_scenes(loader.dataset, model.library, scenes, split)
        _walk(loader, smaller)
    for part in (config.model, config.get('custom_hooks', [])):
        _walk(part, smaller)
    for name in ('val_evaluator', 'test_evaluator'):
        _walk(config[name], lambda part: _evaluate_scenes(part, scenes))
    _one_step(config)
    return config


def _walk(part: Any, change: Callable[[dict], None]) -> None:
    """Call ``change`` for every dict in a tree."""
    if isinstance(part, dict):
        change(part)
    for child in part.values() if isinstance(part, dict) else part:
        if isinstance(child, dict | list | tuple):
            _walk(child, change)


def _without_weights(part: dict) -> None:
    """Start from random weights: the published ones would have to be downloaded."""
    if isinstance(part.get('init_cfg'), dict) and part['init_cfg'].get('type') == 'Pretrained':
        part['init_cfg'] = None
    if isinstance(part.get('pretrained'), str):
        part['pretrained'] = None


def _with_classes(part: dict, count: int) -> None:
    """Set the number of classes, and drop loss weights per class of another data set."""
    if 'num_classes' in part:
        part['num_classes'] = count
    if isinstance(part.get('class_weight'), list) and len(part['class_weight']) not in (
        count,
        count + 1,
    ):
        part['class_weight'] = None


def _replace(part: Any, old: int, new: int) -> None:
    """Replace a number of channels wherever it is."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(value, dict | list):
            _replace(value, old, new)
        elif isinstance(value, tuple):
            part[key] = tuple(new if item == old else item for item in value)
        elif value == old:
            part[key] = new


def _use_scenes(dataset: dict, library: str, scenes: Path, split: str) -> None:
    """Replace the innermost data set by the scenes; pipelines and wrappers stay."""
    while 'dataset' in dataset:
        dataset = dataset['dataset']
    kept = {key: dataset[key] for key in ('pipeline', 'filter_cfg', 'test_mode') if key in dataset}
    dataset.clear()
    if library == 'mmseg':
        folder = {'train': 'training', 'val': 'validation'}[split]
        kept.pop('filter_cfg', None)
        dataset.update(
            type='ADE20KDataset',
            data_root=str(scenes / 'ade20k'),
            data_prefix=dict(img_path=f'images/{folder}', seg_map_path=f'annotations/{folder}'),
            **kept,
        )
    else:
        dataset.update(
            type='CocoDataset',
            data_root=str(scenes / 'coco'),
            ann_file=f'annotations/instances_{split}2017.json',
            data_prefix=dict(img=f'{split}2017/'),
            **kept,
        )


def _evaluate_scenes(part: dict, scenes: Path) -> None:
    if 'ann_file' in part:
        part['ann_file'] = str(scenes / 'coco/annotations/instances_val2017.json')


def _smaller(part: dict, side: int) -> None:
    """Make images small: each size of a transform, a preprocessor or a sliding window."""
    kind = part.get('type')
    scale = (side * 5 // 4, side)  # long and short side
    for key in _SQUARES:
        value = part.get(key)
        if isinstance(value, tuple | list) and len(value) == 2 and max(value) > side:
            part[key] = (side, side)
        elif isinstance(value, int) and not isinstance(value, bool) and value > side:
            part[key] = side
    if part.get('mode') == 'slide':
        part['stride'] = (side * 2 // 3, side * 2 // 3)
    for key in ('scale', 'img_scale'):
        value = part.get(key)
        if isinstance(value, tuple | list) and value and isinstance(value[0], int):
            part[key] = (side, side) if value[0] == value[1] else scale
    if kind == 'RandomChoiceResize' and 'scales' in part:
        part['scales'] = [scale if isinstance(part['scales'][0], tuple | list) else side]
        if 'max_size' in part:
            part['max_size'] = 2 * side
    if kind == 'ResizeShortestEdge':
        part.update(scale=side, max_size=2 * side)


def _one_step(config: Config) -> None:
    """Train for one iteration, with the config's optimizer; keep nothing."""
    config.train_cfg = dict(type='IterBasedTrainLoop', max_iters=1, val_begin=2)
    config.param_scheduler = []
    config.default_hooks.logger.interval = 1
    config.default_hooks.checkpoint = dict(
        type='CheckpointHook', by_epoch=False, interval=1000, save_last=False
    )
    # Mixed precision of the config is for GPUs.
    config.optim_wrapper.type = 'OptimWrapper'
    for key in ('loss_scale', 'dtype'):
        config.optim_wrapper.pop(key, None)
