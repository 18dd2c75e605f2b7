"""Insertion of corruptions into existing pipelines: right after the image loader."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from mmengine.registry import TRANSFORMS

from ..errors import UserError

# LoadImageFromFile, LoadImageFromNDArray, LoadMultiChannelImageFromFiles, ... but no annotations.
IMAGE_LOADER = re.compile(r'Load\w*Image\w*|InferencerLoader')
_POINT = re.compile(r'CorruptionPoint')


def insert_corruption(pipeline: list, transform_cfg: Mapping[str, Any]) -> list:
    """Return a copy of ``pipeline`` with the transform right after every image loader.

    Where the pipeline has a CorruptionPoint, the transform comes there instead. The loader is found
    by its type, whatever its scope (``mmdet.LoadImageFromFile``) and however deeply it is nested in
    other transforms. With ``channel_order='auto'`` (the default) the colour order is read off the
    loader.

    Raises:
        UserError: when the pipeline has no image loader.
    """
    result, found = _place(list(copy.deepcopy(pipeline)), transform_cfg)
    if not found:
        raise UserError(
            'the pipeline loads no image, so a corruption cannot be inserted; its transforms '
            f'are {", ".join(type_name(step) for step in pipeline) or "none"}'
        )
    return result


def corrupt_dataset_cfg(
    dataset_cfg: Mapping[str, Any], transform_cfg: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a copy of a dataset config with the transform after every image loader.

    Wrappers are entered (``dataset`` of RepeatDataset, ClassBalancedDataset, MultiImageMixDataset
    and others, ``datasets`` of ConcatDataset). The folder of the images becomes the transform's
    ``root``, so that the noise does not depend on where the data set is stored.

    Raises:
        UserError: when no dataset in it has a pipeline that loads an image.
    """
    result = copy.deepcopy(dataset_cfg)
    if not _corrupt_dataset(result, transform_cfg):
        raise UserError(
            f'the dataset config ({type_name(dataset_cfg)}) has no pipeline that loads an image, '
            'so a corruption cannot be inserted'
        )
    return result


def corrupt_dataset(dataset: Any, transform_cfg: Mapping[str, Any]) -> Any:
    """Return a copy of a built data set with the transform after every image loader.

    The annotations are shared; the pipelines are not. See `corrupt_dataset_cfg`.

    Raises:
        UserError: when no data set in it has a pipeline that loads an image.
    """
    result, found = _corrupt_built(dataset, transform_cfg)
    if not found:
        raise UserError(
            f'the data set ({type(dataset).__name__}) has no pipeline that loads an image, so '
            'there is no place for a corruption'
        )
    return result


def _corrupt_built(dataset: Any, transform_cfg: Mapping[str, Any]) -> tuple[Any, int]:
    result, found = copy.copy(dataset), 0
    if getattr(dataset, 'datasets', None):
        inner = [_corrupt_built(one, transform_cfg) for one in dataset.datasets]
        result.datasets = [one for one, _ in inner]
        found += sum(count for _, count in inner)
    elif getattr(dataset, 'dataset', None) is not None:
        result.dataset, found = _corrupt_built(dataset.dataset, transform_cfg)
    pipeline = copy.deepcopy(getattr(dataset, 'pipeline', None))
    steps = pipeline if isinstance(pipeline, list) else getattr(pipeline, 'transforms', None)
    if isinstance(steps, list):
        own = {'root': _built_folders(dataset), **transform_cfg}
        after = _POINT if _count_steps(steps, _POINT) else IMAGE_LOADER
        found += _insert_built(steps, own, after)
        result.pipeline = pipeline
    return result, found


def _insert_built(steps: list, transform_cfg: Mapping[str, Any], after: re.Pattern) -> int:
    """Insert the built transform into lists of transforms, in place; returns how many times."""
    found = 0
    for step in list(steps):
        inner = step if isinstance(step, list) else getattr(step, 'transforms', None)
        if isinstance(inner, list):
            found += _insert_built(inner, transform_cfg, after)
        if after.fullmatch(type_name(step)):
            settings = _insert([step], transform_cfg, after)[0][1]
            steps.insert(steps.index(step) + 1, TRANSFORMS.build(settings))
            found += 1
    return found


def _count_steps(steps: list, kind: re.Pattern) -> int:
    inner = (s if isinstance(s, list) else getattr(s, 'transforms', None) for s in steps)
    nested = sum(_count_steps(one, kind) for one in inner if isinstance(one, list))
    return nested + sum(bool(kind.fullmatch(type_name(step))) for step in steps)


def _built_folders(dataset: Any) -> list[str]:
    """As `_image_folders`; a built data set has joined its folders already."""
    prefix = getattr(dataset, 'data_prefix', None) or {}
    prefix = {'img_path': prefix} if isinstance(prefix, str) else prefix
    folders = [prefix.get(key) for key in ('img_path', 'img')]
    return [folder for folder in (*folders, getattr(dataset, 'data_root', None)) if folder]


def _corrupt_dataset(cfg: Any, transform_cfg: Mapping[str, Any]) -> int:
    inner = cfg.get('datasets') or ([cfg['dataset']] if cfg.get('dataset') else [])
    found = sum(_corrupt_dataset(dataset, transform_cfg) for dataset in inner)
    if cfg.get('pipeline'):
        own = {'root': _image_folders(cfg), **transform_cfg}
        cfg['pipeline'], count = _place(list(cfg['pipeline']), own)
        found += count
    return found


def _image_folders(cfg: Mapping[str, Any]) -> list[str]:
    """Return the folders that the image paths of a dataset begin with, the data root last."""
    root = cfg.get('data_root') or ''
    prefix = cfg.get('data_prefix') or {}
    prefix = {'img_path': prefix} if isinstance(prefix, str) else prefix  # mmpretrain's
    folders = [os.path.join(root, prefix[key]) for key in ('img_path', 'img') if prefix.get(key)]
    return [folder for folder in (*folders, root) if folder]


def _place(steps: list, transform_cfg: Mapping[str, Any]) -> tuple[list, int]:
    """Insert at the marked point, or else after the loaders; also return how many times."""
    result, found = _insert(copy.deepcopy(steps), transform_cfg, _POINT)
    return (result, found) if found else _insert(steps, transform_cfg, IMAGE_LOADER)


def _insert(steps: list, transform_cfg: Mapping[str, Any], after: re.Pattern) -> tuple[list, int]:
    """Return the steps with the transform inserted, and how many times it was inserted."""
    result, found = [], 0
    for step in steps:
        if isinstance(step, (list, tuple)):  # one of several sub-pipelines
            step, count = _insert(list(step), transform_cfg, after)
            found += count
        elif isinstance(step, MutableMapping) and isinstance(step.get('transforms'), (list, tuple)):
            step['transforms'], count = _insert(list(step['transforms']), transform_cfg, after)
            found += count
        result.append(step)
        if after.fullmatch(type_name(step)):
            order = transform_cfg.get('channel_order', 'auto')
            order = loaded_order(step) if order == 'auto' else order
            result.append({**copy.deepcopy(dict(transform_cfg)), 'channel_order': order})
            found += 1
    return result, found


def type_name(step: Any) -> str:
    """Name of a transform's class, from its config, its class or itself, without the scope.

    A training run puts guards around its loading steps; they are the loaders that they guard.
    """
    built = getattr(step, 'guarded_loader', step)
    kind = step.get('type', '') if isinstance(step, Mapping) else type(built)
    return str(getattr(kind, '__name__', kind)).rpartition('.')[2]


def loaded_order(loader: Any) -> str:
    """Return the colour order of a loader's output: BGR in mmcv, unless configured otherwise.

    The tifffile backend is the exception: it returns the channels as they are in the file.
    """
    get = loader.get if isinstance(loader, Mapping) else lambda key: getattr(loader, key, None)
    rgb = get('channel_order') == 'rgb' or get('to_rgb') or get('imdecode_backend') == 'tifffile'
    return 'rgb' if rgb else 'bgr'
