"""Composition of one scene from a seed: a street, a crossing road, the country, or a shore.

Objects stand on a flat world seen by a level camera and are painted from far to near, so that
size, overlap and place in the picture all follow from where they stand. Some classes are told
apart by their surroundings alone: water mirrors the sky, sidewalks are paved like roads, a bus has
a building's windows, and a motor boat has a car's body.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from . import figures
from .backdrop import draw_camera, draw_light
from .canvas import SUPERSAMPLE, Stage
from .composer import Composer
from .places import PLACES

SPLITS = ('train', 'val')


@dataclass
class ThingMask:
    """The visible part of one instance: ``mask`` is bool [H, W], ``category`` a COCO id."""

    category: int
    crowd: bool
    mask: np.ndarray


@dataclass
class Scene:
    """One picture: ``image`` RGB uint8 [H, W, 3], ``labels`` uint8 [H, W], and its things."""

    kind: str
    image: np.ndarray
    labels: np.ndarray
    things: list[ThingMask]


def _finish(stage: Stage, rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Add what the lens and the sensor add: darker corners, exposure, noise."""
    height, width = size
    image = cv2.resize(stage.image, (width, height), interpolation=cv2.INTER_AREA)
    rows = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    columns = np.linspace(-1, 1, width, dtype=np.float32)[None]
    corners = 1 - 0.14 * (rows**2 + columns**2) / 2
    exposure = rng.uniform(0.86, 1.12) * (1 + rng.normal(0, 0.02, 3))
    noise = rng.normal(0, rng.uniform(1.0, 4.0), (height, width, 3))
    image = image * corners[..., None] * exposure + noise
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def paint_scene(split: str, index: int, size: tuple[int, int], seed: int = 0) -> Scene:
    """Paint picture ``index`` of a split ('train' or 'val') at ``size`` (height, width).

    The picture depends on these arguments alone: not on how many others are made, nor on order.
    """
    rng = np.random.default_rng([seed, SPLITS.index(split), index])
    height, width = size
    shape = (height * SUPERSAMPLE, width * SUPERSAMPLE)
    stage = Stage(
        image=np.zeros((*shape, 3), np.float32),
        labels=np.zeros(shape, np.uint8),
        owners=np.zeros(shape, np.int32),
        camera=draw_camera(rng, shape),
        light=draw_light(rng),
        rng=rng,
    )
    kind = str(rng.choice(list(PLACES), p=[share for share, _ in PLACES.values()]))
    composer = Composer(stage)
    composer.backdrop.sky()
    if rng.random() < (0.2 if kind in ('street', 'crossing') else 0.7):
        composer.backdrop.mountains(int(rng.integers(1, 4)))
    if rng.random() < 0.15:
        x, y = rng.uniform(0.1, 0.9) * shape[1], rng.uniform(0.1, 0.6) * stage.camera.horizon
        figures.balloon(stage, float(x), float(y), float(rng.uniform(0.03, 0.08) * shape[0]))
    PLACES[kind][1](composer)
    if rng.random() < 0.14:
        flock, ground = ('sheep', 'grass') if kind == 'country' else ('person', 'sidewalk')
        composer.scatter(figures.crowd, 1, ground, 14, 40, (4, 3), flock)
    composer.paint_all()
    step = SUPERSAMPLE // 2  # the sample nearest the middle of each pixel
    owners = stage.owners[step::SUPERSAMPLE, step::SUPERSAMPLE]
    things = [
        ThingMask(instance.category, instance.crowd, owners == number)
        for number, instance in enumerate(stage.instances, start=1)
    ]
    return Scene(
        kind=kind,
        image=_finish(stage, rng, size),
        labels=np.ascontiguousarray(stage.labels[step::SUPERSAMPLE, step::SUPERSAMPLE]),
        things=[thing for thing in things if thing.mask.any()],
    )
