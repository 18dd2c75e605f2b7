"""The four kinds of place: a street, a crossing road, the country and a shore."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import figures, objects
from .composer import Composer


def _street(c: Composer) -> None:
    """Compose a road running away from us between sidewalks and buildings, or along a canal."""
    c.meadow()
    half, walk = float(c.rng.choice((3.3, 5.2))), c.between(2.2, 3.4)
    x0 = half * c.between(-0.6, 0.6)
    canal = int(c.rng.choice((-1, 0, 1), p=(0.12, 0.76, 0.12)))
    if canal:
        c.backdrop.water(lambda x, z: canal * (x - x0) > half + walk + 0.8)
    c.pave('sidewalk', lambda x, z: abs(x - x0) < half + walk)
    c.pave('road', lambda x, z: abs(x - x0) < half)
    c.backdrop.markings(lambda x, z: (abs(x - x0) < 0.09) & (np.mod(z, 6) < 3) & (z < 70))
    c.backdrop.markings(lambda x, z: (abs(abs(x - x0) - half) < 0.07) & (z < 60))
    if c.chance(0.3):
        at = c.between(8, 18)
        c.backdrop.markings(
            lambda x, z: (abs(z - at) < 1.3) & (abs(x - x0) < half) & (np.mod(x, 1.0) < 0.5)
        )
    for side in (-1, 1):
        if side != canal and c.chance(0.85):
            edge = half + walk + c.between(0.3, 3) + side * x0
            c.row_of_buildings(side, edge, c.between(5, 22), 120)
        if c.chance(0.6):
            for z in map(float, np.arange(c.between(6, 16), 60, 16)):
                c.add(z, figures.streetlight, x0 + side * (half + 0.5), z)
    lanes = (-0.5, 0.5) if half < 5 else (-0.75, -0.25, 0.25, 0.75)
    for _ in range(c.count(2, 6)):
        z = float(np.exp(c.between(np.log(8), np.log(60))))
        c.vehicle(x0 + half * float(c.rng.choice(lanes)), z, 'z', buses=0.17)
    c.people(c.count(2, 7), 'sidewalk')
    c.people(c.count(0, 1), 'road')
    c.trees(c.count(1, 5), 'grass', 9, 60)
    c.signs(c.count(0, 2), 'sidewalk')
    c.scatter(figures.bin_, c.count(0, 1), 'sidewalk', 6, 20, (0.8, 0.8))
    if canal:
        c.scatter(objects.boat, c.count(1, 2), 'water', 12, 50, (6, 3))


def _crossing(c: Composer) -> None:
    """Compose a road from left to right, seen from beside it."""
    c.meadow()
    near, half, walk = c.between(7, 14), float(c.rng.choice((3.4, 6.0))), 2.6
    middle, behind = near + walk + half, near + 2 * (walk + half)
    if c.chance(0.35):
        c.pave('sidewalk', lambda x, z: z < near)
    c.pave('sidewalk', lambda x, z: abs(z - middle) < half + walk)
    c.pave('road', lambda x, z: abs(z - middle) < half)
    c.backdrop.markings(lambda x, z: (abs(z - middle) < 0.1) & (np.mod(x, 6) < 3))
    c.skyline(behind + c.between(1, 12), float(c.rng.choice((0.25, 0.6, 0.9))))
    for lane in (-0.5, 0.5):
        z = middle + lane * half
        for _ in range(c.count(0, 3)):
            c.vehicle(c.between(-1, 1) * c.reach(z), z, 'x', buses=0.22)
    c.people(c.count(2, 6), 'sidewalk', 6, behind)
    c.trees(c.count(1, 6), 'grass', 7, behind + 30)
    c.signs(c.count(0, 2), 'sidewalk')
    if c.chance(0.5):
        for x in np.arange(-30, 30, 12.0) + c.between(-6, 6):
            c.add(behind, figures.streetlight, float(x), behind)
    if c.chance(0.2):
        z = near - c.between(0.5, 2)
        c.add(z, figures.fence, (-30, z), (30, z))
    c.scatter(figures.bin_, c.count(0, 1), 'sidewalk', 6, 20, (0.8, 0.8))


def _country(c: Composer) -> None:
    """Compose meadows, a winding road or a lake, sheep, fences and a few houses."""
    c.meadow()
    if c.chance(0.4):
        lx, lz, rx, rz = c.between(-25, 25), c.between(25, 60), c.between(12, 40), c.between(8, 18)
        c.backdrop.water(lambda x, z: ((x - lx) / rx) ** 2 + ((z - lz) / rz) ** 2 < 1)
        c.scatter(objects.boat, c.count(0, 2), 'water', 12, 70, (6, 3))
    if c.chance(0.5):
        x0, lean, bend, start = (
            c.between(-3, 3),
            c.between(-0.3, 0.3),
            c.between(3, 9),
            c.between(0, 6),
        )

        def off_centre(x: np.ndarray, z: np.ndarray) -> np.ndarray:
            return abs(x - x0 - lean * z - bend * (np.sin(z / 22 + start) - np.sin(start)))

        c.pave('road', lambda x, z: off_centre(x, z) < 2.4)
        c.scatter(objects.car, c.count(0, 2), 'road', 9, 50, (3, 6), 'z')
    for _ in range(c.count(0, 2)):
        place = c.spot('grass', 25, 90, 14, 12)
        if place:
            (x, z), half = place, c.between(3.5, 6)
            c.add(z, objects.building, (x - half, x + half), z, 9.0, c.between(4, 8))
    if c.chance(0.75):
        c.scatter(figures.sheep, c.count(3, 11), 'grass', 6, 35, (1.5, 1.0))
    if c.chance(0.6):
        left, right = c.between(7, 30), c.between(7, 30)
        c.add(min(left, right), figures.fence, (-28, left), (28, right))
    c.trees(c.count(4, 14), 'grass', 9, 110)
    c.people(c.count(0, 2), 'grass')


def _shore(c: Composer) -> None:
    """Open water up to the horizon or to a far town, seen from a bank or a promenade."""
    c.meadow()
    bank, slope = c.between(7, 20), c.between(-0.25, 0.25)
    open_sea = c.chance(0.5)
    far = 1e9 if open_sea else 70.0
    c.backdrop.water(lambda x, z: (z > bank + slope * x) & (z < far))
    if c.chance(0.5):
        wide = c.between(2, 4)
        c.pave('sidewalk', lambda x, z: abs(z + wide - bank - slope * x) < wide)
        c.people(c.count(1, 5), 'sidewalk', 5, 20)
        c.scatter(figures.streetlight, c.count(0, 2), 'sidewalk', 7, 20, (2, 2))
    if not open_sea:
        c.skyline(far + 6, float(c.rng.choice((0.1, 0.5, 0.8))))
        c.trees(c.count(3, 8), 'grass', far, far + 30)
    c.scatter(objects.boat, c.count(1, 5), 'water', bank + 3, 65, (6, 3))
    c.people(c.count(0, 3), 'grass', 5, 20)
    c.trees(c.count(0, 3), 'grass', 6, bank + 5)
    c.scatter(figures.sheep, c.count(0, 2), 'grass', 6, 20, (1.5, 1.0))
    if c.chance(0.2):
        ends = [(x, max(bank + x * slope - 0.6, 1.0)) for x in (-25, 25)]
        c.add(bank - 0.3, figures.fence, *ends)


#: kind of place -> its share of the pictures and how it is composed
PLACES: dict[str, tuple[float, Callable[[Composer], None]]] = {
    'street': (0.34, _street),
    'crossing': (0.22, _crossing),
    'country': (0.24, _country),
    'shore': (0.20, _shore),
}
