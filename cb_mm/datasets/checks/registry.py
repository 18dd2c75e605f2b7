"""The data sets that can be checked: one entry each, found by name or from a config."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UserError, did_you_mean
from . import ade20k, coco, imagenet, vqa
from .ade20k import check_ade20k
from .coco import check_coco
from .findings import KINDS, Problem, Report, require_valid
from .imagenet import check_imagenet
from .pair_sets import PAIR_SETS, RUN
from .vqa import check_vqav2

__all__ = [
    'CHECKS',
    'KINDS',
    'DatasetCheck',
    'Problem',
    'Report',
    'check',
    'check_ade20k',
    'check_coco',
    'check_configured',
    'check_imagenet',
    'check_vqav2',
    'require_valid',
]


@dataclass(frozen=True)
class DatasetCheck:
    """All that is known about the check of one data set.

    Attributes:
        name: What ``dataset`` calls it.
        type: The class that reads it, as in ``dataset=dict(type=...)``.
        splits: Its parts.
        run: The check: ``run(root, quick=..., splits=..., ...)``.
        part_of: The split that a config of ``type`` reads from its standard folder; None if it
            reads from elsewhere, and cannot be checked.
        options_of: Further options of ``run``, from the configs of the data set and of the model.
    """

    name: str
    type: str
    splits: tuple[str, ...]
    run: Callable[..., Report]
    part_of: Callable[[Mapping[str, Any]], str | None]
    options_of: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]


def _folders(dataset: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value).strip('/') for key, value in (dataset.get('data_prefix') or {}).items()}


def _ade20k_part(dataset: Mapping[str, Any]) -> str | None:
    folders = _folders(dataset)
    part = folders.get('img_path', '').removeprefix('images/')
    paths = {'img_path': f'images/{part}', 'seg_map_path': f'annotations/{part}'}
    return part if folders == paths and part in ade20k.SPLITS else None


def _coco_part(dataset: Mapping[str, Any]) -> str | None:
    part = _folders(dataset).get('img', '')
    file = f'annotations/instances_{part}.json'
    return part if part and dataset.get('ann_file') == file else None


def _imagenet_part(dataset: Mapping[str, Any]) -> str | None:
    prefix = dataset.get('data_prefix') or {}
    return prefix.get('img_path', '') if isinstance(prefix, Mapping) else prefix


def _vqa_part(dataset: Mapping[str, Any]) -> str | None:
    split = dataset.get('split', 'train2014')
    elsewhere = any(_folders(dataset).values()) or not isinstance(split, str)
    return None if elsewhere else split


#: name -> its entry
CHECKS: dict[str, DatasetCheck] = {
    entry.name: entry
    for entry in (
        DatasetCheck(
            name='ade20k',
            type='ADE20KDataset',
            splits=ade20k.SPLITS,
            run=check_ade20k,
            part_of=_ade20k_part,
            options_of=lambda dataset, model: {},
        ),
        DatasetCheck(
            name='coco',
            type='CocoDataset',
            splits=coco.SPLITS,
            run=check_coco,
            part_of=_coco_part,
            options_of=lambda dataset, model: {
                'classes': (dataset.get('metainfo') or {}).get('classes')
            },
        ),
        DatasetCheck(
            name='imagenet',
            type='ClassFolders',
            splits=imagenet.SPLITS,
            run=check_imagenet,
            part_of=_imagenet_part,
            options_of=lambda dataset, model: {
                'num_classes': (model.get('head') or {}).get('num_classes'),
                'labels': dataset.get('labels', 'auto'),
            },
        ),
        DatasetCheck(
            name='vqav2',
            type='VQAv2Dataset',
            splits=vqa.SPLITS,
            run=check_vqav2,
            part_of=_vqa_part,
            options_of=lambda dataset, model: {},
        ),
        *(
            DatasetCheck(
                name=one.name,
                type=one.type,
                splits=tuple(one.layouts),
                run=RUN[one.name],
                part_of=one.part_of,
                options_of=lambda dataset, model: {},
            )
            for one in PAIR_SETS.values()
        ),
    )
}


def check(dataset: str, root: str | os.PathLike, **options: Any) -> Report:
    """Check a data set by name; ``options`` are those of its check.

    Before a run: ``require_valid(check('ade20k', root, quick=True))``.

    Raises:
        UserError: If the data set has no check or ``root`` is not a folder.
    """
    if dataset not in CHECKS:
        hint = did_you_mean(dataset, CHECKS)
        raise UserError(f'no check for data set {dataset!r}: use {" or ".join(CHECKS)}.{hint}')
    return CHECKS[dataset].run(root, **options)


def check_configured(datasets: list[Mapping[str, Any]], model: Mapping[str, Any]) -> None:
    """Check the data sets of a config quickly, each part once; raise a UserError.

    A data set without a check, or whose files are not in the folders of its release, is skipped.

    Args:
        datasets: Their configs.
        model: The config of the model that they are for.
    """
    seen = set()
    for dataset in datasets:
        kind, root = str(dataset.get('type')).split('.')[-1], dataset.get('data_root')
        for entry in CHECKS.values():
            part = entry.part_of(dataset) if root and entry.type == kind else None
            if part is None or (entry.name, root, part) in seen:
                continue
            seen.add((entry.name, root, part))
            options = entry.options_of(dataset, model)
            require_valid(entry.run(root, quick=True, splits=[part], **options))
