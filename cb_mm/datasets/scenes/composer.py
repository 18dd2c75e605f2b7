"""Placement of objects where the ground fits them, painted from far to near."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import figures, objects
from .backdrop import Backdrop
from .canvas import RGB, Stage
from .classes import SCENE_LABELS

#: paints something on a stage; what follows the stage are its place and its looks
Paint = Callable[..., None]


class Composer:
    """The objects of a scene; nothing overlaps on the ground."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rng = stage.rng
        self.backdrop = Backdrop(stage)
        self._paints: list[tuple[float, Paint, tuple]] = []
        self._taken: list[tuple[float, float, float, float]] = []

    def add(self, z: float, paint: Paint, *more: object) -> None:
        """Queue ``paint(stage, *more)`` for when painting reaches distance ``z``."""
        self._paints.append((z, paint, more))

    def paint_all(self) -> None:
        """Paint from far to near; equal distances keep the order in which they were added."""
        for _, paint, more in sorted(self._paints, key=lambda item: -item[0]):
            paint(self.stage, *more)

    def take(self, x: float, z: float, wide: float, deep: float) -> None:
        """Reserve this plot, so that nothing else is placed on it."""
        self._taken.append((x, z, wide, deep))

    def free(self, x: float, z: float, wide: float, deep: float) -> bool:
        """Return whether the plot is free; if so, reserve it."""
        for ox, oz, ow, od in self._taken:
            if abs(x - ox) < (wide + ow) / 2 and abs(z - oz) < (deep + od) / 2:
                return False
        self.take(x, z, wide, deep)
        return True

    def reach(self, z: float) -> float:
        """Return half the width of the view at distance ``z``, plus a small margin."""
        return 0.6 * self.stage.labels.shape[1] / self.stage.camera.scale(z)

    def spot(
        self, on: str, near: float, far: float, wide: float, deep: float
    ) -> tuple[float, float] | None:
        """Draw a free place (X, Z) on ground of class ``on``; all scales are equally likely."""
        height, width = self.stage.labels.shape
        for _ in range(25):
            z = float(np.exp(self.rng.uniform(np.log(near), np.log(far))))
            x = float(self.rng.uniform(-1, 1)) * self.reach(z)
            column, row = np.rint(self.stage.camera.project(np.array([(x, 0, z)]))[0]).astype(int)
            inside = 0 <= row < height and 0 <= column < width
            if not inside or self.stage.labels[row, column] != SCENE_LABELS[on]:
                continue
            if self.free(x, z, wide, deep):
                return x, z
        return None

    def scatter(
        self,
        paint: Paint,
        count: int,
        on: str,
        near: float,
        far: float,
        size: tuple[float, float],
        *more: object,
    ) -> None:
        """Place ``count`` objects, as far as there is room, each given ``more`` after its place."""
        for _ in range(count):
            place = self.spot(on, near, far, *size)
            if place:
                self.add(place[1], paint, *place, *more)

    def count(self, low: int, high: int) -> int:
        """Draw a number of things, ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """Return True in that share of the scenes."""
        return bool(self.rng.random() < share)

    def between(self, low: float, high: float) -> float:
        """Draw a length in metres."""
        return float(self.rng.uniform(low, high))

    # The methods below define what belongs together in every kind of place.

    def trees(self, count: int, on: str, near: float, far: float) -> None:
        """Add trees of all sizes."""
        for _ in range(count):
            self.scatter(objects.tree, 1, on, near, far, (2.0, 2.0), self.between(3.5, 9))

    def people(self, count: int, on: str, near: float = 6, far: float = 45) -> None:
        """Add single walkers."""
        self.scatter(figures.person, count, on, near, far, (0.7, 0.7))

    def signs(self, count: int, on: str) -> None:
        """Add signs of any kind, stop signs being the most common."""
        for _ in range(count):
            kind = self.rng.choice(('stop', 'warning', 'board'), p=(0.5, 0.25, 0.25))
            self.scatter(figures.sign, 1, on, 7, 30, (1.2, 0.5), str(kind))

    def vehicle(self, x: float, z: float, along: str, buses: float) -> None:
        """Add a bus (with the chance ``buses``) or a car, if there is room in the lane."""
        is_bus = self.chance(buses)
        long = 12.0 if is_bus else 5.6
        plot = (long, 2.0) if along == 'x' else (2.4, long)
        if self.free(x, z + (0 if along == 'x' else long / 2), *plot):
            self.add(z, objects.bus if is_bus else objects.car, x, z, along)

    def row_of_buildings(self, side: int, edge: float, near: float, far: float) -> None:
        """Add buildings along a street, wall to wall, with a gap now and then."""
        z = near
        while z < far:
            depth, height, wide = self.between(8, 18), self.between(5, 24), self.between(8, 14)
            if self.chance(0.82):
                x = (edge, edge + wide) if side > 0 else (-edge - wide, -edge)
                self.add(z, objects.building, x, z, depth, height)
                self.take(sum(x) / 2, z + depth / 2, wide, depth)
            z += depth + float(self.rng.choice((0.0, 2.5)))

    def skyline(self, z: float, density: float) -> None:
        """Add buildings side by side, facing us from distance ``z``."""
        x = -self.reach(z)
        while x < self.reach(z):
            wide, height, back = self.between(7, 17), self.between(5, 20), self.between(0, 4)
            if self.chance(density):
                self.add(z + back, objects.building, (x, x + wide), z + back, 9.0, height)
                self.take(x + wide / 2, z + back + 4.5, wide, 9.0)
            x += wide + float(self.rng.choice((0.0, 1.5)))

    def meadow(self) -> None:
        """Cover everything with grass; other ground is laid over it."""
        tone = np.array((108, 138, 62)) + self.rng.normal(0, 9, 3)
        self.backdrop.ground('grass', lambda x, z: np.full(x.shape, True), tuple(tone), 0.16, 22)

    def pave(self, label: str, region: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        """Draw asphalt or flagstones: one family of greys for roads and sidewalks."""
        level = self.between(98, 158)
        grey: RGB = (level, level, level + self.between(-4, 8))
        self.backdrop.ground(label, region, grey, 0.07, 30)
