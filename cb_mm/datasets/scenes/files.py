"""One scene as the bytes of its files, and its COCO records."""

from __future__ import annotations

import cv2
import numpy as np

from .classes import COCO_CATEGORIES
from .painter import SPLITS, Scene, ThingMask

# Contours run through pixel centres; at this magnification the half pixel they cut off all round
# is an eighth of one.
_MAGNIFY = 4

#: Things smaller than this (in pixels) are not annotated; human annotators skip them too.
MIN_AREA = 12.0


def jpeg(image: np.ndarray) -> bytes:
    """Encode RGB uint8 [H, W, 3] as a JPEG file."""
    return cv2.imencode('.jpg', image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()


def png(labels: np.ndarray) -> bytes:
    """Encode labels uint8 [H, W] as a one-channel PNG file."""
    return cv2.imencode('.png', labels)[1].tobytes()


def coco_image_id(split: str, index: int) -> int:
    """Return a sparse id as in COCO, never shared by the two splits, whatever their sizes."""
    return 37 * index + (9, 22)[SPLITS.index(split)]


def coco_image(split: str, index: int, size: tuple[int, int]) -> dict:
    """Return the ``images`` record of a scene."""
    number = coco_image_id(split, index)
    return {
        'license': 1,
        'file_name': f'{number:012d}.jpg',
        'height': size[0],
        'width': size[1],
        'id': number,
    }


def rle(mask: np.ndarray) -> dict:
    """Return COCO's uncompressed run lengths: down the columns, starting with background."""
    flat = np.concatenate([[0], mask.ravel(order='F').astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(flat))
    runs = np.diff(np.concatenate([[0], edges, [mask.size]]))
    # A mask that reaches the last pixel would otherwise end in an empty run.
    counts = [int(n) for n in (runs[:-1] if len(runs) > 1 and runs[-1] == 0 else runs)]
    return {'counts': counts, 'size': [int(n) for n in mask.shape]}


def polygons(mask: np.ndarray) -> list[list[float]]:
    """Return the outlines of a mask in COCO's form, [x0, y0, x1, y1, ...] each, holes filled."""
    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    if not width:
        return []
    part = mask[top : top + height, left : left + width].astype(np.uint8)
    big = cv2.resize(part, None, fx=_MAGNIFY, fy=_MAGNIFY, interpolation=cv2.INTER_NEAREST)
    outlines, _ = cv2.findContours(big, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    found = []
    for outline in outlines:
        short = cv2.approxPolyDP(outline, 0.35 * _MAGNIFY, closed=True)[:, 0]
        if len(short) >= 3 and cv2.contourArea(short) >= 2 * _MAGNIFY**2:
            corners = (short + 0.5) / _MAGNIFY + (left, top)
            found.append([round(float(v), 2) for v in corners.ravel()])
    return found


def _shoelace(ring: list[float]) -> float:
    x, y = np.array(ring[::2]), np.array(ring[1::2])
    return float(abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2)


def _annotation(thing: ThingMask) -> dict | None:
    """Return outline, area and box of a thing; None when too little of it is in view."""
    if thing.crowd:
        rows, columns = np.nonzero(thing.mask)
        area = float(len(rows))
        left, top = int(columns.min()), int(rows.min())
        box = [left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top]
        outline: dict | list = rle(thing.mask)
    else:
        rings = polygons(thing.mask)
        area = round(sum(_shoelace(ring) for ring in rings), 3)
        if not rings:
            return None
        x, y = (np.concatenate([ring[i::2] for ring in rings]) for i in (0, 1))
        box = [x.min(), y.min(), np.ptp(x), np.ptp(y)]
        outline = rings
    if area < MIN_AREA:
        return None
    return {
        'segmentation': outline,
        'area': area,
        'iscrowd': int(thing.crowd),
        'bbox': [round(float(v), 2) for v in box],
        'category_id': thing.category,
    }


def coco_annotations(scene: Scene, image_id: int) -> list[dict]:
    """Return the ``annotations`` records of a scene; their ids follow from the image's."""
    found = [record for thing in scene.things if (record := _annotation(thing))]
    return [
        {**record, 'image_id': image_id, 'id': 1000 * image_id + number}
        for number, record in enumerate(found, start=1)
    ]


def coco_document(images: list[dict], annotations: list[dict]) -> dict:
    """Return an instances file, without a date: the same seed must give the same bytes."""
    return {
        'info': {'description': 'Procedural scenes in the layout of COCO 2017', 'version': '1.0'},
        'licenses': [{'id': 1, 'name': 'Apache License 2.0', 'url': ''}],
        'images': images,
        'annotations': annotations,
        'categories': COCO_CATEGORIES,
    }
