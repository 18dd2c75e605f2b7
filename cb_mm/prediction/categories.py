"""Category ids of a detector's classes, for COCO files: a model counts its classes from 0."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from ..config.loading import dataset_configs
from ..fileio.result_files import parse_json

#: Numbers that COCO left out between 1 and 90.
_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
_OFFICIAL = [number for number in range(1, 91) if number not in _GAPS]
#: A larger file of annotations is not read for its categories.
_LARGEST = 1 << 28


def category_ids(config: Config, classes: Sequence[str], count: int = 0) -> list[int]:
    """Return the id of each class: as in the config's annotations, COCO's own, or from 1.

    Args:
        config: Its test data set names a file of annotations, which may be there.
        classes: Names of the model's classes.
        count: How many there are, if they have no names.
    """
    for dataset in dataset_configs(config, ('test', 'val', 'train')):
        file = Path(os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or ''))
        found = _ids_in(file) if file.suffix == '.json' else {}
        if classes and all(name in found for name in classes):
            return [found[name] for name in classes]
    if list(classes) == _coco_classes():
        return _OFFICIAL
    return list(range(1, max(len(classes), count) + 1))


def _coco_classes() -> list[str]:
    from mmdet.datasets import CocoDataset

    return list(CocoDataset.METAINFO['classes'])


def _ids_in(file: Path) -> dict[str, int]:
    try:
        if not 0 < file.stat().st_size <= _LARGEST:
            return {}
        content = parse_json(file.read_bytes())
        return {str(one['name']): int(one['id']) for one in content['categories']}
    except (OSError, ValueError, TypeError, KeyError):  # not there, or another layout
        return {}
