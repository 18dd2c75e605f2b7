"""Panoptic quality without panopticapi, which is not on PyPI, and in constant memory.

A segment of the prediction and one of the truth match when they are of the same class and their IoU
is above one half (Kirillov et al., "Panoptic Segmentation", 2019). Rules for unlabelled regions and
crowds are those of the COCO panoptic task.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmengine.registry import METRICS

from ..errors import MissingFile, UserError
from ..fileio.json_shape import ListOf, mismatch
from ..fileio.result_files import read_json
from .streaming import Figures, State, StreamingMetric

#: mmdet numbers a segment as label + 1000 × instance.
_OFFSET = 1000
_VOID = 0
_SEGMENT = {'id': int, 'category_id': int}
_TRUTH = {
    'annotations': ListOf(
        {'image_id': (int, str), 'file_name': str, 'segments_info': ListOf(_SEGMENT)}
    ),
    'categories': ListOf({'id': int, 'name': str}),
}
#: An IoU is counted in units of 2⁻³², so that sums are exact.
_ONE = 1 << 32


@METRICS.register_module()
class PanopticQualityMetric(StreamingMetric):
    """PQ, SQ and RQ in per cent, of all classes, things (``_th``) and stuff (``_st``).

    The figures are those of mmdet's CocoPanopticMetric.

    Args:
        ann_file: Annotations in COCO's panoptic format.
        seg_prefix: Folder of the label maps that they name.
        collect_device: As in mmengine.
        prefix: As in mmengine.
    """

    default_prefix = 'coco_panoptic'

    def __init__(
        self,
        ann_file: str,
        seg_prefix: str,
        collect_device: str = 'cpu',
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix)
        self.seg_prefix = Path(seg_prefix)
        self.ann_file = Path(ann_file)
        content = _read_truth(self.ann_file)
        self.truth = {one['image_id']: one for one in content['annotations']}
        self.categories = {one['id']: one for one in content['categories']}

    def measure(self, sample: Mapping[str, Any]) -> State:
        """Match the segments of one image."""
        if 'pred_panoptic_seg' not in sample:
            raise UserError('PanopticQualityMetric needs a model that predicts panoptic segments.')
        truth = self.truth.get(sample['img_id'])
        if truth is None:
            raise UserError(f'{self.ann_file} has no annotation of image {sample["img_id"]}.')
        labels = self._labels()
        segments = {one['id']: one for one in truth['segments_info']
                    if one['category_id'] in labels}  # fmt: skip
        true_map = _read_ids(self.seg_prefix / truth['file_name'])
        found = sample['pred_panoptic_seg']
        classes = len(self.dataset_meta['classes'])
        predicted = np.asarray(found['sem_seg'].cpu()).astype(np.int64)
        predicted = predicted.reshape(predicted.shape[-2:])
        if predicted.shape != true_map.shape:
            sizes = ['x'.join(map(str, one.shape[::-1])) for one in (true_map, predicted)]
            raise UserError(f'label map {truth["file_name"]} is {sizes[0]}, its image {sizes[1]}.')
        ignored = found.get('ignore_index', classes)
        void = (predicted % _OFFSET == classes) | (predicted % _OFFSET == ignored)
        predicted = np.where(void, _VOID, predicted + 1)  # 0 is the first class in mmdet
        shared, areas = _overlaps(true_map, predicted)
        state = {name: np.zeros(classes, np.int64) for name in ('iou', 'tp', 'fp', 'fn')}
        matched: set[tuple[str, int]] = set()
        for (true, guess), both in shared.items():
            segment = segments.get(true)
            if guess == _VOID or segment is None or segment.get('iscrowd'):
                continue
            label = labels[segment['category_id']]
            if label != (guess - 1) % _OFFSET:
                continue
            union = areas['true'][true] + areas['guess'][guess] - both
            union -= shared.get((_VOID, guess), 0)
            if 2 * both > union:
                state['iou'][label] += round(both / union * _ONE)
                state['tp'][label] += 1
                matched |= {('true', true), ('guess', guess)}
        crowds = {}
        for number, segment in segments.items():
            label = labels[segment['category_id']]
            if segment.get('iscrowd'):
                crowds[label] = number
            elif ('true', number) not in matched:
                state['fn'][label] += 1
        for guess, area in areas['guess'].items():
            label = (guess - 1) % _OFFSET
            if guess == _VOID or ('guess', guess) in matched:
                continue
            unknown = shared.get((_VOID, guess), 0)
            if label in crowds:
                unknown += shared.get((crowds[label], guess), 0)
            state['fp'][label] += 2 * unknown <= area
        return state

    def figures(self, state: State) -> Figures:
        """Return the means over the classes that occur, and each class."""
        if not state:
            raise UserError('PanopticQualityMetric: no image was tested.')
        iou, tp = state['iou'] / _ONE, state['tp']
        size = tp + (state['fp'] + state['fn']) / 2
        with np.errstate(invalid='ignore', divide='ignore'):
            classes = {
                'PQ': np.where(size > 0, iou / size, np.nan),
                'SQ': np.where(size > 0, np.where(tp > 0, iou / tp, 0), np.nan),
                'RQ': np.where(size > 0, tp / size, np.nan),
            }
        things = self._things()
        metrics = {}
        for suffix, chosen in (('', things | ~things), ('_th', things), ('_st', ~things)):
            known = chosen & (size > 0)
            for name, values in classes.items():
                # No class of this kind: 0, as in panopticapi.
                metrics[name + suffix] = float(100 * values[known].mean()) if known.any() else 0.0
        return Figures(metrics, {'PQ': 100 * classes['PQ']})

    def _labels(self) -> dict[int, int]:
        """Return category id -> label."""
        place = {name: label for label, name in enumerate(self.dataset_meta['classes'])}
        return {number: place[one['name']] for number, one in self.categories.items()
                if one['name'] in place}  # fmt: skip

    def _things(self) -> np.ndarray:
        labels = self._labels()
        things = np.zeros(len(self.dataset_meta['classes']), bool)
        for number, label in labels.items():
            things[label] = bool(self.categories[number].get('isthing', 0))
        return things


def _read_truth(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise MissingFile(f'PanopticQualityMetric: ann_file {file} does not exist.')
    try:
        content = read_json(file)
    except ValueError as error:
        raise UserError(f'PanopticQualityMetric: ann_file {file} is not JSON ({error}).') from error
    wrong = mismatch(content, _TRUTH)
    if wrong:
        raise UserError(f"{file} is not in COCO's panoptic format: {wrong}. Correct ann_file.")
    return content


def _read_ids(path: Path) -> np.ndarray:
    """Return the number of the segment of each pixel: R + 256 G + 65536 B of the label map."""
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise MissingFile(f'label map {path} of the panoptic annotations cannot be read.')
    blue, green, red = (image[..., k].astype(np.int64) for k in range(3))
    return red + 256 * green + 65536 * blue


def _overlaps(
    true: np.ndarray, guess: np.ndarray
) -> tuple[dict[tuple[int, int], int], dict[str, dict[int, int]]]:
    """Return the pixels that each pair of segments shares, and the size of each segment."""
    base = int(guess.max()) + 1
    pairs, counts = np.unique(true * base + guess, return_counts=True)
    shared = {(int(p) // base, int(p) % base): int(n) for p, n in zip(pairs, counts, strict=True)}
    areas: dict[str, dict[int, int]] = {'true': {}, 'guess': {}}
    for (one, two), number in shared.items():
        areas['true'][one] = areas['true'].get(one, 0) + number
        areas['guess'][two] = areas['guess'].get(two, 0) + number
    return shared, areas
