"""The true labels on the pixels that the model gets, which an attack needs.

Testing pipelines load labels after the resizing, at the size of the file, which is right for the
metric and wrong for the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch.nn import functional

from ...errors import UserError


def truth_dataset_cfg(test: Mapping[str, Any], train: Mapping[str, Any] | None) -> Any:
    """Return the config of the test data set with labels loaded right after the image.

    Args:
        test: config of the test data set.
        train: config of the training data set; its pipeline loads the labels that the loss needs,
            while the test pipeline may load fewer.
    """
    labels = _step(train, 'LoadAnnotations') or _step(test, 'LoadAnnotations')
    if labels is None and _packs_labels(test):
        return copy.deepcopy(test)
    if labels is None:
        raise UserError(
            'an attack needs the true labels, but no pipeline of the config has a LoadAnnotations. '
            'Panoptic models cannot be attacked.'
        )
    result = copy.deepcopy(test)
    if not _move_labels(result, labels, _step(train, 'GenerateEdge')):
        raise UserError('attack: the pipeline of the test data set loads no image.')
    return result


def _kind(step: Any) -> str:
    kind = step.get('type', '') if isinstance(step, Mapping) else ''
    return str(getattr(kind, '__name__', kind)).rpartition('.')[2]


def _datasets(config: Any) -> list:
    """Return the data set itself, or those inside a wrapper."""
    inner = config.get('datasets') or ([config['dataset']] if config.get('dataset') else [])
    return [leaf for one in inner for leaf in _datasets(one)] or [config]


def _step(config: Mapping[str, Any] | None, kind: str) -> Any:
    for dataset in _datasets(config) if config else ():
        for step in dataset.get('pipeline') or ():
            if _kind(step) == kind:
                return copy.deepcopy(step)
    return None


def _packs_labels(config: Mapping[str, Any]) -> bool:
    """Return whether mmpretrain packs the label: it belongs to the image, not to its pixels."""
    return any(
        _kind(step) == 'PackInputs'
        for dataset in _datasets(config)
        for step in dataset.get('pipeline') or ()
    )


def _move_labels(config: Any, labels: Any, edges: Any = None) -> bool:
    """Load the labels after the image; make the edges, which PIDNet learns, before packing."""
    moved = False
    for dataset in _datasets(config):
        steps = [step for step in dataset.get('pipeline') or () if _kind(step) != 'LoadAnnotations']
        places = [i for i, step in enumerate(steps) if _kind(step).startswith('LoadImage')]
        if places:
            steps.insert(places[0] + 1, labels)
            steps[-1:-1] = [edges] if edges else []
            dataset['pipeline'] = steps
            moved = True
    return moved


def pad_truth(preprocessor: Any, sample: Any, size: tuple[int, int]) -> None:
    """Give the labels the padding that the image got; preprocessors do so only in training."""
    if 'gt_sem_seg' in sample and 'data' in sample.gt_sem_seg:  # mmseg
        labels = sample.gt_sem_seg.data
        missing = size[0] - labels.shape[-2], size[1] - labels.shape[-1]
        if min(missing) < 0:
            raise UserError(
                f'attack: the labels ({labels.shape[-2]} x {labels.shape[-1]}) are larger than the '
                f'image ({size[0]} x {size[1]}); they must be resized with it.'
            )
        fill = getattr(preprocessor, 'seg_pad_val', 255)
        padded = functional.pad(labels, (0, missing[1], 0, missing[0]), value=fill)
        sample.gt_sem_seg = type(sample.gt_sem_seg)(data=padded)
        if 'gt_edge_map' in sample:
            edges = functional.pad(sample.gt_edge_map.data, (0, missing[1], 0, missing[0]))
            sample.gt_edge_map = type(sample.gt_edge_map)(data=edges)
    if 'gt_instances' in sample and getattr(preprocessor, 'pad_mask', False):  # mmdet
        preprocessor.pad_gt_masks([sample])
        if getattr(preprocessor, 'pad_seg', False):
            preprocessor.pad_gt_sem_seg([sample])
