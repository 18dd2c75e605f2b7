"""How each object of the scenes is painted: boxes in perspective, and flat figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .canvas import RGB, Stage, bar, ellipse, shaded

# A face of a box: (u, v) in 0-1, left to right and bottom to top, to world points [n, 3].
Face = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ground_shadow(stage: Stage, x: float, z: float, width: float, height: float) -> None:
    """Cast the shadow of an upright object on the ground, away from the sun."""
    away = -stage.light.side * 0.55 * height
    depth = 0.18 * height + 0.3 * width
    corners = [
        (x - width / 2, 0, z),
        (x + width / 2, 0, z),
        (x + width / 2 + away, 0, z + depth),
        (x - width / 2 + away, 0, z + depth),
    ]
    stage.darken(stage.camera.project(np.array(corners)), 0.9)


def contact_shadow(stage: Stage, x: float, z: float, width: float) -> None:
    """Paint the dark patch right under something that stands on the ground."""
    (px, py) = stage.camera.project(np.array([(x, 0, z)]))[0]
    scale = stage.camera.scale(z)
    stage.darken(ellipse(px, py, 0.62 * width * scale, 0.16 * width * scale), 1.1)


class Box:
    """An upright block; ``inset`` draws its top in (a car's cabin, a roof)."""

    def __init__(
        self,
        stage: Stage,
        x: tuple[float, float],
        y: tuple[float, float],
        z: tuple[float, float],
        inset: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.stage = stage
        self.x, self.y, self.z, self.inset = x, y, z, inset

    def _point(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return world points from fractions across (a), up (b) and ahead (c)."""
        (x0, x1), (y0, y1), (z0, z1) = self.x, self.y, self.z
        ix, iz = self.inset[0] * b, self.inset[1] * b
        return np.stack(
            np.broadcast_arrays(
                x0 + ix + (x1 - x0 - 2 * ix) * a,
                y0 + (y1 - y0) * b,
                z0 + iz + (z1 - z0 - 2 * iz) * c,
            ),
            axis=-1,
        )

    def faces(self) -> list[tuple[Face, float]]:
        """Return the visible faces in painting order, each with how brightly it is lit."""
        sunny = self.stage.light.side
        strength = self.stage.light.shadow
        seen: list[tuple[Face, float]] = []
        if self.x[0] > 0:
            seen.append((lambda u, v: self._point(0 * u, v, 1 - u), 1 - strength * (sunny > 0)))
        if self.x[1] < 0:
            seen.append((lambda u, v: self._point(1 + 0 * u, v, u), 1 - strength * (sunny < 0)))
        if self.y[1] < self.stage.camera.height:
            seen.append((lambda u, v: self._point(u, 1 + 0 * v, v), 1.12))
        seen.append((lambda u, v: self._point(u, v, 0 * u), 1 - 0.35 * strength))
        return seen

    def quad(self, face: Face, u0: float, u1: float, v0: float, v1: float) -> np.ndarray:
        """Return a rectangle on a face, in pixels [4, 2]."""
        u, v = np.array([u0, u1, u1, u0]), np.array([v0, v0, v1, v1])
        return self.stage.camera.project(face(u, v))

    def paint(self, colour: RGB, grain: float = 0.04) -> None:
        """Paint all visible faces in one colour, each in its own light."""
        for face, light in self.faces():
            lit = shaded(colour, light)
            self.stage.fill([self.quad(face, 0, 1, 0, 1)], lit, self.z[0], grain, shade=0.05)

    def panes(
        self, colour: RGB, columns: int, rows: int, low: float = 0.0, high: float = 1.0
    ) -> None:
        """Paint a grid of windows between the heights ``low`` and ``high`` of each upright face."""
        for face, light in self.faces():
            if light > 1.1:  # the top
                continue
            width = np.ptp(face(np.array([0.0, 1.0]), np.zeros(2)), axis=0).max()
            n = max(1, round(columns * width / max(self.x[1] - self.x[0], self.z[1] - self.z[0])))
            du, dv = 1 / n, (high - low) / rows
            cells = [
                self.quad(
                    face,
                    (i + 0.22) * du,
                    (i + 0.78) * du,
                    low + (j + 0.2) * dv,
                    low + (j + 0.8) * dv,
                )
                for i in range(n)
                for j in range(rows)
            ]
            self.stage.fill(cells, shaded(colour, light), self.z[0], 0.05, 0.2)


def building(stage: Stage, x: tuple[float, float], z: float, depth: float, height: float) -> None:
    """Paint a house or a tower block with rows of windows."""
    rng = stage.rng
    stage.start('building')
    tones = [(178, 122, 98), (201, 180, 150), (150, 152, 158), (214, 206, 190), (128, 96, 84)]
    tone = np.array(tones[rng.integers(len(tones))]) + rng.normal(0, 10, 3)
    box = Box(stage, x, (0, height), (z, z + depth))
    box.paint(tuple(tone), grain=0.06)
    floors = max(1, round(height / 3.2))
    columns = max(2, round(max(x[1] - x[0], depth) / 3))
    lit = rng.random() < (0.5 if stage.light.horizon[0] > 225 else 0.1)  # low sun, lamps on
    glass = (228, 204, 140) if lit else (60, 74, 92)
    box.panes(glass, columns, floors, low=0.06, high=0.97)
    if height < 9:  # houses have roofs
        roof = Box(stage, x, (height, height + 2.6), (z, z + depth), (0.35 * (x[1] - x[0]), 0.0))
        roof.paint((132 + rng.normal(0, 14), 70, 58), grain=0.12)


def _wheels(stage: Stage, box: Box, radius: float, along: str) -> None:
    """Paint the wheels on the long side in view, and the two nearest ones seen end on."""
    (x0, x1), (z0, z1) = box.x, box.z
    angle = np.linspace(0, 2 * np.pi, 14, endpoint=False)
    up = radius + radius * np.sin(angle)
    if along == 'x':
        discs = [
            np.stack([x0 + f * (x1 - x0) + radius * np.cos(angle), up, 0 * angle + z0], axis=1)
            for f in (0.19, 0.81)
        ]
    else:
        side = x0 if x0 > 0 else x1
        discs = [
            np.stack([0 * angle + side, up, z0 + f * (z1 - z0) + radius * np.cos(angle)], axis=1)
            for f in (0.2, 0.8)
        ]
        discs += [
            np.array([(a, 0, z0), (b, 0, z0), (b, 1.6 * radius, z0), (a, 1.6 * radius, z0)])
            for a, b in ((x0, x0 + 0.25), (x1 - 0.25, x1))
        ]
    stage.fill([stage.camera.project(d) for d in discs], (28, 28, 30), z0, 0.1)


PAINTS: tuple[RGB, ...] = (
    (196, 42, 40),
    (232, 232, 228),
    (40, 70, 150),
    (58, 60, 66),
    (222, 178, 50),
    (70, 120, 90),
    (170, 176, 182),
)


def _body(stage: Stage, x: float, z: float, along: str, wheels: bool, lift: float) -> None:
    """Paint hull and cabin, shared by cars and motor boats: only what is below tells them apart."""
    rng = stage.rng
    length, width = rng.uniform(3.8, 4.8), 1.8
    across, ahead = (length, width) if along == 'x' else (width, length)
    paint = PAINTS[rng.integers(len(PAINTS))]
    xs, zs = (x - across / 2, x + across / 2), (z, z + ahead)
    hull = Box(stage, xs, (lift, lift + 0.62), zs)
    shift_x, shift_z = (0.22 * across, 0.0) if along == 'x' else (0.1, 0.25 * ahead)
    cabin = Box(
        stage,
        (xs[0] + shift_x * 0.8, xs[1] - shift_x),
        (lift + 0.62, lift + 1.2),
        (zs[0] + shift_z * 0.5, zs[1] - shift_z),
        (0.1 * across, 0.06 * ahead),
    )
    if abs(x) > across / 2 or stage.camera.height > lift + 1.2:
        hull.paint(paint, grain=0.03)
    cabin.paint(shaded(paint, 0.92), grain=0.03)
    cabin.panes((46, 58, 74), 2, 1, low=0.12, high=0.95)
    if wheels:
        _wheels(stage, hull, 0.34, along)
    if along == 'z':
        face = hull.faces()[-1][0]
        lamps = [hull.quad(face, 0.06, 0.24, 0.5, 0.8), hull.quad(face, 0.76, 0.94, 0.5, 0.8)]
        stage.fill(lamps, (226, 60, 44), z, 0.0)


def car(stage: Stage, x: float, z: float, along: str) -> None:
    """Paint a car; a third of them sit so low that no wheel shows."""
    low = stage.rng.random() < 0.33
    ground_shadow(stage, x, z, 4.2 if along == 'x' else 1.8, 1.4)
    contact_shadow(stage, x, z, 4.4 if along == 'x' else 2.0)
    stage.start('car', 'car')
    _body(stage, x, z, along, wheels=not low, lift=0.05 if low else 0.28)


def bus(stage: Stage, x: float, z: float, along: str) -> None:
    """Paint a bus: windows in rows like a building's, but on the road."""
    rng = stage.rng
    across, ahead = (10.5, 2.5) if along == 'x' else (2.5, 10.5)
    ground_shadow(stage, x, z, across, 3.0)
    contact_shadow(stage, x, z, across)
    stage.start('bus', 'bus')
    paint = ((200, 60, 48), (232, 180, 44), (214, 206, 190), (62, 110, 160))[rng.integers(4)]
    box = Box(stage, (x - across / 2, x + across / 2), (0.28, 3.1), (z, z + ahead))
    box.paint(paint, grain=0.03)
    box.panes((48, 60, 76), 8, 1, low=0.42, high=0.98)
    _wheels(stage, box, 0.45 if along == 'x' else 0.24, along)


def boat(stage: Stage, x: float, z: float) -> None:
    """Paint a sailing boat, or a motor boat with a car's body."""
    rng, camera = stage.rng, stage.camera
    px, py = camera.project(np.array([(x, 0, z)]))[0]
    s = camera.scale(z)
    stage.darken(ellipse(px, py + 0.25 * s, 3.0 * s, 0.45 * s), 0.8)
    stage.start('boat', 'boat')
    if rng.random() < 0.5:
        _body(stage, x, z, 'x', wheels=False, lift=0.05)
        return
    flip = rng.choice((-1, 1))
    paint = PAINTS[rng.integers(len(PAINTS))]
    sail = ((240, 238, 230), (236, 226, 196), (200, 66, 52))[rng.integers(3)]

    def at(points: list[tuple[float, float]]) -> np.ndarray:
        return np.array([(px + flip * a * s, py - b * s) for a, b in points])

    stage.fill([at([(-2.6, 0.8), (3.2, 0.95), (2.2, 0), (-2.2, 0)])], paint, z, 0.03, 0.12)
    stage.fill([at([(0.15, 0.8), (0.3, 0.8), (0.3, 6.6), (0.15, 6.6)])], (90, 70, 50), z)
    stage.fill([at([(0.1, 1.3), (0.1, 6.4), (-2.3, 1.4)])], sail, z, 0.03, 0.08)
    stage.fill([at([(0.4, 1.2), (0.4, 5.6), (2.7, 1.1)])], sail, z, 0.03, -0.08)


def tree(stage: Stage, x: float, z: float, height: float) -> None:
    """Paint a broad-leaved tree of many clumps, or a conifer of stacked tiers."""
    rng = stage.rng
    px, py = stage.camera.project(np.array([(x, 0, z)]))[0]
    s = stage.camera.scale(z) * height
    ground_shadow(stage, x, z, 0.5 * height, height)
    stage.start('tree')
    trunk = max(0.035 * s, 0.8)
    stage.fill([bar(px - trunk, py - 0.45 * s, px + trunk, py)], (92, 70, 52), z, 0.15)
    green = np.array((62, 104, 46)) + rng.normal(0, 12, 3)
    if rng.random() < 0.12:
        green = np.array((176, 110, 44)) + rng.normal(0, 12, 3)  # autumn
    if rng.random() < 0.3:
        tiers = [
            np.array([(px - w * s, py - b * s), (px + w * s, py - b * s), (px, py - t * s)])
            for w, b, t in ((0.24, 0.16, 0.6), (0.19, 0.38, 0.8), (0.13, 0.6, 1.0))
        ]
        for tier in tiers:
            stage.fill([tier], tuple(0.72 * green), z, 0.3, -0.2)
        return
    angle, spread = rng.uniform(0, 2 * np.pi, 12), np.sqrt(rng.uniform(0, 1, 12))
    cx = px + 0.24 * s * spread * np.cos(angle)
    cy = py - 0.66 * s + 0.2 * s * spread * np.sin(angle)
    radius = s * rng.uniform(0.1, 0.17, 12)
    for share, tone, grain in ((1.0, 0.7, 0.3), (0.75, 1.0, 0.28), (0.4, 1.25, 0.25)):
        move = (1 - share) * 0.1 * s
        clumps = [
            ellipse(a + stage.light.side * move, b - move, share * r, share * r)
            for a, b, r in zip(cx, cy, radius, strict=True)
        ]
        stage.fill(clumps, tuple(tone * green), z, grain)
