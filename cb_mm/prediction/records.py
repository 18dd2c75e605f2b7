"""``predictions.jsonl``: what was found in every image, one line each; and the tables made of it.

The tables are written from the file, line by line, so that their size does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..fileio.atomic import draft_of
from ..fileio.result_files import parse_json, plain
from ..fileio.safe_text import csv_text, readable
from .colours import ClassStyle
from .results import Detections, Ranking, Result, Segmentation

RECORDS = 'predictions.jsonl'
TABLE = 'predictions.csv'
COCO = 'predictions.json'

_HEADS = {
    'segmentation': ('pixels', 'share'),
    'detection': ('count', 'best_score'),
    'classification': ('rank', 'score'),
}


def result_record(result: Result, corruption: str) -> dict[str, Any]:
    """Return a result in plain values; a label map is in a file of its own."""
    about: dict[str, Any] = {'corruption': corruption, 'kind': result.kind}
    if isinstance(result, Segmentation):
        about['pixels'] = {str(number): count for number, count in result.pixels().items()}
        return about
    about['labels'] = result.labels.tolist()
    about['scores'] = [float(score) for score in result.scores]
    if isinstance(result, Detections):
        about['boxes'] = [[float(value) for value in box] for box in result.boxes]
        if result.masks is not None:
            about['masks'] = [_run_lengths(mask) for mask in result.masks]
    return about


def result_from_record(about: Mapping[str, Any], labels: np.ndarray | None = None) -> Result:
    """Return what `result_record` was given; the label map comes from its file."""
    if about['kind'] == 'segmentation':
        assert labels is not None  # the caller reads it
        return Segmentation(labels)
    numbers = np.asarray(about['labels'], np.int64)
    scores = np.asarray(about['scores'], np.float32)
    if about['kind'] == 'classification':
        return Ranking(numbers, scores)
    masks = None
    if 'masks' in about:
        masks = np.asarray([_mask(code) for code in about['masks']], bool)
    boxes = np.asarray(about['boxes'], np.float32).reshape(-1, 4)
    return Detections(boxes, scores, numbers, masks)


def _run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """Return COCO's compressed code of a mask."""
    from pycocotools import mask as coco_masks  # here: segmentation works without it

    code = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {'size': code['size'], 'counts': code['counts'].decode('ascii')}


def _mask(code: Mapping[str, Any]) -> np.ndarray:
    from pycocotools import mask as coco_masks

    return coco_masks.decode({'size': code['size'], 'counts': code['counts'].encode('ascii')})


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one record per image, and per frame of a video, in the order of the file."""
    with (folder / RECORDS).open('rb') as stream:
        for line in stream:
            record = parse_json(line)
            if record.get('kind') != 'record':
                continue
            frames = record.get('frames')
            if frames is None:
                yield record
                continue
            with (folder / frames).open('rb') as inner:
                for frame in inner:
                    yield parse_json(frame)


def write_table(folder: Path, style: ClassStyle, score: float) -> str | None:
    """Write one row per image, corruption and class; return the kind of the results."""
    path = folder / TABLE
    with draft_of(path) as draft, draft.open('w', encoding='utf-8', newline='') as stream:
        kind = None
        for record in read_records(folder):
            for about in record['results']:
                if kind is None:
                    kind = about['kind']
                    head = ['image', 'frame', 'corruption', 'class', *_HEADS[kind]]
                    stream.write(csv_text([head]))
                start = [record['source'], record.get('frame'), about['corruption']]
                rows = _rows(about, record['size'], style, score)
                stream.write(csv_text([[*start, *row] for row in rows]))
    return kind


def _rows(
    about: Mapping[str, Any], size: Sequence[int], style: ClassStyle, score: float
) -> Iterator[list]:
    if about['kind'] == 'segmentation':
        whole = size[0] * size[1]
        for number, pixels in about['pixels'].items():
            yield [style.name(int(number)), pixels, pixels / whole]
    elif about['kind'] == 'classification':
        for rank, (number, value) in enumerate(zip(about['labels'], about['scores'], strict=True)):
            yield [style.name(number), rank + 1, value]
    else:
        sure = [pair for pair in zip(about['labels'], about['scores'], strict=True)
                if pair[1] >= score]  # fmt: skip
        for number in sorted({label for label, _ in sure}):
            found = [value for label, value in sure if label == number]
            yield [style.name(number), len(found), max(found)]


def write_coco(
    folder: Path, style: ClassStyle, ids: Sequence[int], place: int = 0, corruption: str = ''
) -> Path:
    """Write all detections in COCO's layout, each with its score.

    Args:
        folder: Of the records.
        style: Names of the classes.
        ids: Number of each class in the file.
        place: Which of the results of each image.
        corruption: Becomes part of the file's name.
    """
    path = folder / (f'predictions_{corruption}.json' if corruption else COCO)
    categories = [{'id': one, 'name': readable(style.name(k))} for k, one in enumerate(ids)]
    with draft_of(path) as draft, draft.open('w', encoding='utf-8') as stream:
        stream.write(f'{{"categories": {json.dumps(categories)},\n"images": [')
        for number, record in enumerate(read_records(folder), 1):
            about = {'id': number, 'file_name': record['source']}
            about |= {'height': record['size'][0], 'width': record['size'][1]}
            about |= {'frame': record['frame']} if 'frame' in record else {}
            stream.write(('' if number == 1 else ',') + '\n' + json.dumps(plain(about)))
        stream.write('],\n"annotations": [')
        count = 0
        for number, record in enumerate(read_records(folder), 1):
            for one in _annotations(record['results'][place], number, ids):
                count += 1
                text = json.dumps({'id': count, **one})
                stream.write(('' if count == 1 else ',') + '\n' + text)
        stream.write(']}\n')
    return path


def _annotations(about: Mapping[str, Any], image: int, ids: Sequence[int]) -> Iterator[dict]:
    masks = about.get('masks') or [None] * len(about['labels'])
    for label, score, box, mask in zip(
        about['labels'], about['scores'], about['boxes'], masks, strict=True
    ):
        if label >= len(ids):
            raise UserError(f'the model found class {label}, and there are {len(ids)} classes.')
        x1, y1, x2, y2 = box
        found = {
            'image_id': image,
            'category_id': ids[label],
            'bbox': [x1, y1, x2 - x1, y2 - y1],
            'score': score,
            'area': (x2 - x1) * (y2 - y1) if mask is None else float(_mask(mask).sum()),
            'iscrowd': 0,
        }
        yield found if mask is None else {**found, 'segmentation': mask}
