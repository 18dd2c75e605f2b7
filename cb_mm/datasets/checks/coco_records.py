"""Checks of the records of a COCO instances file, one by one, without reading any image.

Each check yields (kind, message) pairs and never raises, whatever the JSON holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Finding = tuple[str, str]

#: Pixels by which an outline or a box may leave the image: annotation tools round.
TOLERANCE = 2.0


def is_id(value: Any) -> bool:
    """Return whether this is a whole number: evaluation sorts and compares ids."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether this is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_image_record(record: Any) -> Iterator[Finding]:
    """Check an entry of ``images``."""
    if not isinstance(record, dict):
        yield 'json-record', f'an image record is {_short(record)}, not an object'
        return
    who = f'image {_short(record.get("id"))}'
    missing = [key for key in ('id', 'file_name', 'width', 'height') if key not in record]
    if missing:
        yield 'json-record', f'{who}: no {", ".join(missing)}'
        return
    if not is_id(record['id']):
        yield 'json-record', f'{who}: the id must be a whole number'
    for key in ('width', 'height'):
        if not is_id(record[key]) or record[key] <= 0:
            yield 'json-record', f'{who}: {key} is {_short(record[key])}'
    name = record['file_name']
    if not isinstance(name, str) or not name or '\0' in name:
        yield 'json-record', f'{who}: file_name is {_short(name)}'
    elif name.startswith(('/', '\\')) or '..' in name.replace('\\', '/').split('/'):
        yield 'image-path', f'{who}: file_name is {_short(name)}'


def check_category_record(record: Any) -> Iterator[Finding]:
    """Check an entry of ``categories``."""
    if not isinstance(record, dict):
        yield 'json-record', f'a category record is {_short(record)}, not an object'
    elif not is_id(record.get('id')) or not isinstance(record.get('name'), str):
        yield 'json-record', f'category {_short(record)}: needs a whole number id and a name'


def check_annotation_record(
    record: Any, images: dict[int, dict], categories: set[int]
) -> Iterator[Finding]:
    """Check an entry of ``annotations``; ``images`` are the valid records by id."""
    if not isinstance(record, dict):
        yield 'json-record', f'an annotation record is {_short(record)}, not an object'
        return
    who = f'annotation {_short(record.get("id"))}'
    needed = ('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd', 'segmentation')
    missing = [key for key in needed if key not in record]
    if missing:
        yield 'json-record', f'{who}: no {", ".join(missing)}'
    if 'id' in record and not is_id(record['id']):
        yield 'json-record', f'{who}: the id must be a whole number'
    image_id: Any = record.get('image_id')
    category = record.get('category_id')
    if 'category_id' in record and not (is_id(category) and category in categories):
        yield 'unknown-category', f'{who}: category_id {_short(category)} is not in the file'
    if 'iscrowd' in record and record['iscrowd'] not in (0, 1):
        yield 'json-record', f'{who}: iscrowd is {_short(record["iscrowd"])}, not 0 or 1'
    if 'image_id' not in record:
        return
    image = images.get(image_id) if is_id(image_id) else None
    if image is None:
        yield 'unknown-image', f'{who}: image_id {_short(image_id)} is not in the file'
        return
    who = f'{who} (image {image_id}, {image["file_name"]})'
    size = (image['width'], image['height'])
    if 'area' in record:
        yield from _check_area(who, record['area'])
    box = record.get('bbox')
    sound = True
    if 'bbox' in record:
        for finding in _check_box(who, box, size):
            sound = False
            yield finding
    if 'segmentation' in record:
        yield from _check_segmentation(who, record['segmentation'], size, box if sound else None)


def _check_area(who: str, area: Any) -> Iterator[Finding]:
    if not is_number(area) or area < 0:
        yield 'area', f'{who}: area is {_short(area)}'
    elif area == 0:
        yield 'box-empty', f'{who}: area is 0'


def _check_box(who: str, box: Any, size: tuple[int, int]) -> Iterator[Finding]:
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_number, box)):
        yield 'box', f'{who}: bbox is {_short(box)}'
        return
    x, y, width, height = box
    if width < 0 or height < 0:
        yield 'box-negative', f'{who}: bbox is {box}'
    elif width == 0 or height == 0:
        yield 'box-empty', f'{who}: bbox is {box}'
    elif x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0:
        yield 'box-outside', f'{who}: bbox is {box} in an image of {size[0]}x{size[1]}'
    elif (
        min(x, y) < -TOLERANCE
        or x + width > size[0] + TOLERANCE
        or y + height > size[1] + TOLERANCE
    ):
        yield 'box-overhang', f'{who}: bbox is {box} in an image of {size[0]}x{size[1]}'


def _check_segmentation(
    who: str, outline: Any, size: tuple[int, int], box: list[float] | None
) -> Iterator[Finding]:
    """Check polygons or run lengths; compare polygons with ``box`` if that is valid."""
    if isinstance(outline, dict):
        fault = _rle_fault(outline, size)
        if fault:
            yield 'segmentation', f'{who}: run lengths {fault}'
        return
    if not isinstance(outline, list) or not outline:
        yield 'segmentation', f'{who}: segmentation is {_short(outline)}'
        return
    rings = []
    for number, ring in enumerate(outline):
        points = _ring(ring)
        if isinstance(points, str):
            yield 'segmentation', f'{who}: polygon {number} {points}'
            return
        rings.append(points)
    corners = np.concatenate(rings)
    low, high = corners.min(axis=0), corners.max(axis=0)
    if (low < -TOLERANCE).any() or (high > np.array(size) + TOLERANCE).any():
        yield (
            'segmentation-outside',
            f'{who}: polygons span x {low[0]:g} to {high[0]:g}, y {low[1]:g} to {high[1]:g} '
            f'in an image of {size[0]}x{size[1]}',
        )
    elif box is not None:
        off = np.abs(np.array([*low, *high]) - (box[0], box[1], box[0] + box[2], box[1] + box[3]))
        if off.max() > TOLERANCE + 0.02 * max(size):
            yield 'box-mismatch', f'{who}: bbox is {box}, its outline is {off.max():.1f} pixels off'


def _ring(ring: Any) -> np.ndarray | str:
    """Return the corners [n, 2] of a polygon, or what is wrong with it."""
    if not isinstance(ring, list):
        return f'is {_short(ring)}, not a list of numbers'
    if len(ring) < 6 or len(ring) % 2:
        return f'has {len(ring)} numbers; it needs at least three corners of two numbers each'
    try:
        points = np.asarray(ring)
    except (ValueError, OverflowError):
        return 'is not a flat list of numbers'
    if points.ndim != 1 or points.dtype.kind not in 'iuf':
        return 'is not a flat list of numbers'
    if not np.isfinite(points).all():
        return 'has NaN or infinite corners'
    return points.reshape(-1, 2).astype(np.float64)


def _rle_fault(outline: dict, size: tuple[int, int]) -> str | None:
    """Return what is wrong with run lengths, plain or packed into a string."""
    width, height = size
    if outline.get('size') != [height, width]:
        return f'are for size {_short(outline.get("size"))}, the image is [{height}, {width}]'
    counts = outline.get('counts')
    if isinstance(counts, str):
        counts = _unpack(counts)
        if counts is None:
            return 'are not in the packed form of COCO'
    if not isinstance(counts, list) or not all(is_id(n) and n >= 0 for n in counts):
        return f'are {_short(counts)}, not numbers from 0 up'
    if sum(counts) != width * height:
        return f'cover {sum(counts):,} pixels of {width * height:,}'
    if not sum(counts[1::2]):
        return 'mark no pixel'
    return None


def _unpack(text: str) -> list[int] | None:
    """Run lengths of COCO's packed form; None if it is broken.

    Written out, because pycocotools trusts the string: a wrong one reads or writes out of bounds.
    Six bits per character: five of the number, lowest first, and one that says more follow. From
    the fourth on, a number is the difference to the one two before.
    """
    counts: list[int] = []
    value = shift = 0
    for char in text:
        bits = ord(char) - 48
        if not 0 <= bits < 64 or shift > 60:
            return None
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:  # the sign
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    return None if shift else counts


def _short(value: Any) -> str:
    """Return a value as JSON would show it, cut to fit in a message."""
    if isinstance(value, int) and abs(value) > 10**20:  # printing it could take forever
        return 'a huge number'
    if isinstance(value, list | dict) and len(value) > 8:
        return f'a {"list" if isinstance(value, list) else "object"} of {len(value):,}'
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + '...'
