"""The images that a model finds hardest, with truth and prediction, clean and corrupted.

They are kept in ``worst_images.json`` beside the results, so that the page of another model can
show both predictions.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from mmengine.dataset import pseudo_collate

from ..corruption import Cell
from ..engine.hooks.sample_guard import LoadFailure
from ..fileio.json_shape import ListOf, MapOf, mismatch
from ..fileio.result_files import read_json, write_json
from ..prediction.colours import ClassStyle
from ..prediction.drawing import overlay, seen_image
from ..prediction.results import Detections, Ranking, Result, Segmentation, result_of, truth_of
from .attacks.catalogue import ATTACKS
from .image_scores import read_image_scores
from .jobs import CLEAN, Job
from .tester import ModelUnderTest

FILE = 'worst_images.json'
#: How many images are shown for each of the two reasons.
EACH = 6
#: Longer side of a picture in pixels.
_SIDE = 460
#: Score of an image, for a headline metric: name in the file of image scores.
_PER_IMAGE = {'mIoU': 'mIoU', 'bbox_mAP': 'bbox_AP', 'segm_mAP': 'segm_AP', 'top1': 'top1'}
_PICTURE = re.compile(r'data:image/jpeg;base64,[A-Za-z0-9+/]+={0,2}')
_VIEW = {'pictures': MapOf(str), 'texts': MapOf(str), 'score': (float, None)}
_SHAPE = ListOf(
    {'image': str, 'why': str, 'key': (str, None), 'cell': (str, None),
     'clean': _VIEW, 'corrupted': (_VIEW, None), 'legend': ListOf({'name': str, 'colour': str})}
)  # fmt: skip


def image_metric(headline: Sequence[str]) -> str | None:
    """Return the score of single images that belongs to the first headline metric."""
    return next((_PER_IMAGE[name] for name in headline if name in _PER_IMAGE), None)


def pass_key(cell: Mapping[str, Any]) -> str:
    """Return the pass of a cell whose images are shown: the first repeat."""
    return f'{cell["key"]}_{cell["repeats"][0]}' if cell['random'] else cell['key']


def draw_worst_images(
    tester: ModelUnderTest,
    results: Mapping[str, Any],
    folder: Path,
    also: Mapping[str, str | None] | None = None,
) -> list[dict[str, Any]]:
    """Run the model on its worst images once more, and draw them.

    The noise is that of the test, so what is shown is what was scored.

    Args:
        tester: The model and its images.
        results: Content of ``results.json``.
        folder: Where the image scores are, and where the pictures are kept.
        also: More images to draw, by name, and under which corruption: those of another model.
    """
    metric = image_metric(results['headline'])
    cells = {cell['key']: cell for cell in results['cells'] if cell['corruption'] not in ATTACKS}
    scores: dict[str, np.ndarray] = {}
    for key, cell in cells.items():
        found = read_image_scores(folder, pass_key(cell))
        if found is None or len(found.names) != len(tester.dataset):
            continue  # missing, damaged or changed
        if metric in found.metrics:
            scores[key] = found.metrics[metric]
    chosen = _choose(scores, tester.dataset.names, list(also or ()))
    drawn = []
    for number, why in chosen.items():
        corrupted = {key: values[number] for key, values in scores.items() if key != CLEAN}
        known = {key: value for key, value in corrupted.items() if not np.isnan(value)}
        key = (also or {}).get(tester.dataset.names[number])
        if key not in known:
            key = min(known, key=lambda one: known[one]) if known else None
        drawn.append(_draw(tester, number, why, cells, key, scores))
    write_json(folder / FILE, drawn)
    return drawn


def _choose(
    scores: Mapping[str, np.ndarray], names: Sequence[str], also: Sequence[str]
) -> dict[int, str]:
    """Return the numbers of the images to show, and why."""
    chosen: dict[int, str] = {}
    clean = scores.get(CLEAN)
    if clean is not None:
        for number in np.argsort(np.where(np.isnan(clean), np.inf, clean), kind='stable')[:EACH]:
            if not np.isnan(clean[number]):
                chosen[int(number)] = 'lowest score on clean images'
        others = [values for key, values in scores.items() if key != CLEAN]
        if others:
            drop = clean - np.fmin.reduce(others)
            order = np.argsort(np.where(np.isnan(drop), np.inf, -drop), kind='stable')
            for number in [int(n) for n in order if n not in chosen][:EACH]:
                if not np.isnan(drop[number]):
                    chosen[number] = 'largest loss under corruption'
    for name in also:
        if name in names:
            chosen.setdefault(list(names).index(name), 'chosen by the other model')
    return chosen


def _draw(
    tester: ModelUnderTest,
    number: int,
    why: str,
    cells: Mapping[str, Mapping[str, Any]],
    key: str | None,
    scores: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    style = ClassStyle.of_meta(tester.dataset.metainfo)
    present: set[int] = set()
    view = _view(tester, number, Cell(CLEAN), style, present, truth=True)
    view['score'] = scores[CLEAN][number] if CLEAN in scores else None
    corrupted = None
    if key is not None:
        cell = cells[key]
        job = Cell(cell['corruption'], cell['level'], cell['severity'])
        corrupted = _view(tester, number, job, style, present)
        corrupted['score'] = scores[key][number]
    colours = style.colours(max(present, default=0) + 1)
    return {
        'image': tester.dataset.names[number],
        'why': why,
        'key': key,
        'cell': None if key is None else cells[key]['title'],
        'clean': view,
        'corrupted': corrupted,
        'legend': [
            {'name': style.name(one), 'colour': '#{:02x}{:02x}{:02x}'.format(*colours[one])}
            for one in sorted(present)
        ],
    }


def _view(
    tester: ModelUnderTest,
    number: int,
    cell: Cell,
    style: ClassStyle,
    present: set[int],
    truth: bool = False,
) -> dict[str, Any]:
    """Return pictures of one image under one corruption, or texts for a classifier."""
    sample = tester.dataset[number, Job(cell)]
    if isinstance(sample, LoadFailure):  # it was loaded in the test; the disk is another matter
        return {'pictures': {}, 'texts': {'note': sample.message}, 'score': None}
    batch = pseudo_collate([sample])
    image = seen_image(batch['inputs'][0], tester.dataset.channel_order)
    output = tester.predict(batch)[0]
    view: dict[str, Any] = {'pictures': {}, 'texts': {}, 'score': None}
    try:
        result = result_of(output)
    except TypeError as error:  # a panoptic model, say
        view['texts']['note'] = f'no picture of {error}'
        return view
    known = truth_of(output) if truth else None
    if not isinstance(result, Ranking):
        height, width = (int(side) for side in output.ori_shape[:2])
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    view['pictures']['image'] = _encode(image)
    for name, one in (('truth', known), ('prediction', result)):
        if one is None:
            continue
        if isinstance(one, Ranking):
            view['texts'][name] = _ranked(one, style, name == 'prediction')
        else:
            view['pictures'][name] = _encode(overlay(image, one, style))
            present.update(_classes(one, len(style.names)))
    return view


def _classes(result: Result, known: int) -> set[int]:
    if isinstance(result, Segmentation):
        return {one for one in result.pixels() if one < (known or 255)}
    assert isinstance(result, Detections)
    return set(result.above(0.3).labels.tolist())


def _ranked(ranking: Ranking, style: ClassStyle, scored: bool) -> str:
    pairs = zip(ranking.labels.tolist(), ranking.scores.tolist(), strict=True)
    return '; '.join(
        f'{style.name(label)} {100 * score:.1f} %' if scored else style.name(label)
        for label, score in pairs
    )


def _encode(image: np.ndarray) -> str:
    scale = min(_SIDE / max(image.shape[:2]), 1.0)
    if scale < 1:
        size = max(round(image.shape[1] * scale), 1), max(round(image.shape[0] * scale), 1)
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    code = cv2.imencode('.jpg', image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
    return f'data:image/jpeg;base64,{base64.b64encode(code.tobytes()).decode()}'


def read_worst_images(folder: str | Path | None) -> dict[str, dict[str, Any]]:
    """Return those of another model by image; empty where there are none that can be used."""
    if folder is None:
        return {}
    try:
        found = read_json(Path(folder) / FILE)
    except (OSError, ValueError):
        return {}
    if mismatch(found, _SHAPE) is not None or len(found) > 10 * EACH:
        return {}
    for one in found:
        for view in (one['clean'], one['corrupted'] or {'pictures': {}}):
            if not all(_PICTURE.fullmatch(picture) for picture in view['pictures'].values()):
                return {}
    return {one['image']: one for one in found}
