"""Frost: ice on the window, drawn from random seeds, or cut from photographs that the user has.

ImageNet-C uses photographs, which this package does not contain.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from ..registry import corruption
from .blur import smooth
from .weather import cloud

# How much of the image is left, and how much ice is added.
_FROST = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))

_GLIMMER = 110, 180, 255  # brightness of the crystals, from those behind to those in front
_SPRAYS = 4, 3  # bunches of crystals with one root, along the longer and the shorter side
_FERNS = 4  # crystals of a bunch
_JOINTS = 12  # places on a stem from which two branches grow
_TWIGS = 2  # places on a branch from which two twigs grow
_SUBPIXEL_BITS = 4
_TINT = -24, -6, 5  # ice is bluish
_BRIGHTNESS = 85, 225
_LIGHT = np.array([[-2, -1, 0], [-1, 0, 1], [0, 1, 2]], np.float32)  # from the upper left
_SOFT_AND_RELIEF = 0.25 * np.pad([[np.float32(1)]], 1) + 0.15 * _LIGHT


@corruption(
    levels=(1, 2, 3, 4, 5),
    valid=(1, 5),
    unit='severity of ImageNet-C, which sets the shares of image and (drawn) ice together',
    random=True,
    whole=True,
    note="its ice is drawn; ImageNet-C's is photographed: frost_pictures takes such photographs",
)
def frost(
    image: np.ndarray,
    level: float,
    rng: np.random.Generator,
    pictures: Sequence[np.ndarray] | None = None,
) -> np.ndarray:
    """Mix the image with a sheet of ice crystals.

    The ice is drawn (`ice_sheet`). With ``pictures``, photographs of frost (uint8 RGB), it is a
    random part of one of them, as in ImageNet-C.
    """
    kept, added = _FROST[int(level) - 1]
    height, width = image.shape[:2]
    if pictures is None:
        ice = ice_sheet(height, width, rng)
    else:
        ice = _part_of(pictures[int(rng.integers(len(pictures)))], height, width, rng)
    return cv2.addWeighted(image, kept, ice, added, 0)


def _part_of(picture: np.ndarray, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Cut a random part of that size; a picture that is too small is enlarged until it fits."""
    scale = max(height / picture.shape[0], width / picture.shape[1])
    if scale > 1:
        rows, columns = (round(side * scale) for side in picture.shape[:2])
        size = max(columns, width), max(rows, height)
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC)
    top = int(rng.integers(picture.shape[0] - height + 1))
    left = int(rng.integers(picture.shape[1] - width + 1))
    return picture[top : top + height, left : left + width]


def ice_sheet(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return a frosted window, uint8 RGB, H x W x 3.

    Its brightness differs from sheet to sheet as it does among the photographs of ImageNet-C.
    """
    crystal = np.zeros((height, width), np.float32)
    for tours, glimmer in zip(_grow(height, width, rng), _GLIMMER, strict=True):
        twice = np.zeros((height, width), np.uint8)
        cv2.polylines(twice, list(tours), False, 255, 1, cv2.LINE_AA, _SUBPIXEL_BITS)
        crystal -= glimmer
        crystal *= cv2.LUT(twice, _FREE)
        crystal += glimmer
    ice = smooth(crystal, 0.0015 * max(height, width))
    ice = cv2.filter2D(ice, -1, _SOFT_AND_RELIEF)
    ice = cv2.scaleAdd(crystal, 0.22, ice)
    ice = cv2.scaleAdd(cloud(height, width, 1.4, rng), 60, ice)
    ice += rng.uniform(*_BRIGHTNESS) - cv2.mean(ice)[0]
    np.maximum(ice, -min(_TINT), out=ice)  # so that no tint makes it negative
    return cv2.merge([cv2.convertScaleAbs(ice, beta=tint) for tint in _TINT])


def _grow(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return fern-like crystals: layers x crystals x points of `_TOUR` x 2, in sub-pixels (x, y).

    The plane is complex: a step is a number, and a turn is a product.
    """
    sprays = _SPRAYS if width > height else _SPRAYS[::-1]
    # One root at a random place in each cell of a grid: the window is covered, no grid is visible.
    fields = np.stack(np.meshgrid(*(np.arange(n) for n in sprays), indexing='ij')).reshape(2, -1, 1)
    one = fields.shape[1:]
    shape = (one[0], _FERNS)
    draws = [
        (
            rng.random(fields.shape),
            rng.uniform(0, 2 * np.pi, one) + rng.normal(0, 1.0, shape),
            rng.uniform(0.12, 0.38, one) * rng.uniform(0.4, 1, shape),
            rng.normal(0, 0.3, shape),
            rng.uniform(0.5, 1.0, (*one, 1)),
            rng.uniform(0.4, 1.2, (*shape, _JOINTS, 2)),
        )
        for _ in _GLIMMER
    ]
    # The ferns of a spray have one root and open like a fan.
    layers = (np.stack(drawn) for drawn in zip(*draws, strict=True))
    place, angle, length, bend, opening, vigour = layers
    x, y = np.moveaxis((fields + place) / np.reshape(sprays, (2, 1, 1)), 1, 0)
    root = np.broadcast_to(x * width + 1j * y * height, angle.shape)
    length *= max(height, width)

    along = np.arange(1, _JOINTS + 1) / _JOINTS
    heading = np.exp(1j * (angle[..., None] + bend[..., None] * along))
    joints = root[..., None] + np.cumsum(heading, axis=-1) * (length / _JOINTS)[..., None]

    turns = np.exp(1j * np.stack([opening, -opening], -1))
    taper = np.minimum(1.05 - along, 2 * along) * length[..., None]
    branch = 0.25 * (heading * taper)[..., None] * turns * vigour
    tips = joints[..., None] + branch

    part = np.arange(1, _TWIGS + 1) / (_TWIGS + 1)
    forks = joints[..., None, None] + branch[..., None] * part
    twig = (branch[..., None] * (0.4 * (1.1 - part)))[..., None] * turns[..., None, None, :]
    ends = forks[..., None] + twig

    parts = (root[..., None], joints, tips, forks, ends)
    nodes = np.concatenate([part.reshape(len(_GLIMMER), root[0].size, -1) for part in parts], -1)
    points = np.stack([nodes.real, nodes.imag], -1) * (1 << _SUBPIXEL_BITS)
    return np.rint(points).astype(np.int32).take(_TOUR, axis=2)


def _tour() -> list[int]:
    """Return a walk along a crystal that takes every stretch of it twice, there and back.

    OpenCV spends more time on a line than on its pixels, so a crystal is drawn as a single one.
    The points have the order of `_grow`: root, joints, tips of branches, forks, ends of twigs.
    """
    branches = 2 * _JOINTS
    tips = 1 + _JOINTS
    forks = tips + branches
    ends = forks + branches * _TWIGS
    walk = [0]
    for joint in range(1, tips):
        walk.append(joint)
        for branch in (2 * joint - 2, 2 * joint - 1):
            way = range(branch * _TWIGS, (branch + 1) * _TWIGS)
            for fork in way:
                walk += [forks + fork, ends + 2 * fork, forks + fork, ends + 2 * fork + 1]
                walk.append(forks + fork)
            walk += [tips + branch, *(forks + fork for fork in reversed(way)), joint]
    return walk + list(range(_JOINTS - 1, -1, -1))


_TOUR = np.array(_tour())
# What a line leaves free of a pixel, from the brightness of drawing it twice in white.
_FREE = np.sqrt(1 - np.arange(256, dtype=np.float32) / 255)
