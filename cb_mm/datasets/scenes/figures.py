"""The small things of the scenes: people, sheep, signs, lights, fences, and objects of no class."""

from __future__ import annotations

import numpy as np

from .canvas import RGB, Stage, bar, ellipse, shaded
from .objects import PAINTS, contact_shadow, ground_shadow

SKINS: tuple[RGB, ...] = ((236, 196, 166), (196, 146, 108), (120, 82, 60), (86, 58, 44))


def _foot(stage: Stage, x: float, z: float) -> tuple[float, float, float]:
    """Return the pixel where something stands, and the pixels per metre there."""
    px, py = stage.camera.project(np.array([(x, 0, z)]))[0]
    return px, py, stage.camera.scale(z)


def _figure(stage: Stage, x: float, z: float) -> None:
    rng = stage.rng
    px, py, s = _foot(stage, x, z)
    s *= rng.uniform(0.85, 1.08)
    top = PAINTS[rng.integers(len(PAINTS))]
    trousers = ((44, 52, 84), (40, 40, 44), (120, 104, 84))[rng.integers(3)]
    skin = SKINS[rng.integers(len(SKINS))]
    stride = rng.uniform(0.05, 0.3)

    def at(points: list[tuple[float, float]]) -> np.ndarray:
        return np.array([(px + a * s, py - b * s) for a, b in points])

    legs = [
        at([(0.02, 0.9), (0.2, 0.9), (0.1 + stride, 0), (stride - 0.06, 0)]),
        at([(-0.2, 0.9), (0.0, 0.9), (0.06 - stride, 0), (-0.1 - stride, 0)]),
    ]
    stage.fill(legs, trousers, z, 0.05)
    arms = [
        at([(0.18, 1.42), (0.28, 1.4), (0.36, 0.82), (0.26, 0.8)]),
        at([(-0.18, 1.42), (-0.28, 1.4), (-0.36, 0.82), (-0.26, 0.8)]),
    ]
    stage.fill(arms, shaded(top, 0.85), z, 0.05)
    stage.fill([at([(-0.22, 1.46), (0.22, 1.46), (0.2, 0.84), (-0.2, 0.84)])], top, z, 0.05, 0.1)
    stage.fill([ellipse(px, py - 1.62 * s, 0.125 * s, 0.15 * s)], skin, z, 0.02)
    hair = ((40, 30, 24), (96, 66, 40), (180, 150, 100))[rng.integers(3)]
    stage.fill([ellipse(px, py - 1.7 * s, 0.125 * s, 0.09 * s)], hair, z, 0.1)


def person(stage: Stage, x: float, z: float) -> None:
    """Paint someone walking."""
    ground_shadow(stage, x, z, 0.4, 1.7)
    stage.start('person', 'person')
    _figure(stage, x, z)


def _sheep(stage: Stage, x: float, z: float) -> None:
    rng = stage.rng
    px, py, s = _foot(stage, x, z)
    way = rng.choice((-1, 1))
    wool = np.array((226, 220, 206)) * rng.uniform(0.85, 1.05)
    legs = [bar(px + a * s, py - 0.4 * s, px + (a + 0.1) * s, py) for a in (-0.4, -0.2, 0.2, 0.38)]
    stage.fill(legs, (58, 50, 46), z)
    clumps = [
        ellipse(px + a * s, py - b * s, r * s, 0.85 * r * s)
        for a, b, r in ((-0.32, 0.6, 0.3), (0, 0.66, 0.36), (0.32, 0.62, 0.3), (0, 0.5, 0.36))
    ]
    stage.fill(clumps, tuple(wool), z, 0.14, 0.12)
    stage.fill([ellipse(px + way * 0.66 * s, py - 0.74 * s, 0.17 * s, 0.15 * s)], (62, 52, 48), z)


def sheep(stage: Stage, x: float, z: float) -> None:
    """Paint one sheep."""
    contact_shadow(stage, x, z, 1.2)
    stage.start('animal', 'sheep')
    _sheep(stage, x, z)


def crowd(stage: Stage, x: float, z: float, kind: str) -> None:
    """Paint a group too close together to tell apart: one annotation for all of it."""
    n = int(stage.rng.integers(7, 16))
    label, draw, pitch = ('person', _figure, 0.5) if kind == 'person' else ('animal', _sheep, 0.95)
    stage.start(label, kind, crowd=True)
    offsets = stage.rng.normal(0, 1, (n, 2)) * (pitch * n / 5, 0.8)
    for dx, dz in offsets[np.argsort(-offsets[:, 1])]:
        draw(stage, x + dx, z + dz)


def sign(stage: Stage, x: float, z: float, kind: str) -> None:
    """Paint a stop sign, a warning sign or a direction board; only the first is a COCO thing."""
    px, py, s = _foot(stage, x, z)
    half = max(0.05 * s, 0.8)
    stage.start('signboard', 'stop sign' if kind == 'stop' else None)
    if kind == 'board':
        w, low, high = 1.6, 2.0, 3.6
        stage.fill([bar(px - half, py - low * s, px + half, py)], (128, 130, 134), z)
        stage.fill([bar(px - w * s, py - high * s, px + w * s, py - low * s)], (36, 92, 170), z)
        lines = [
            bar(px - 0.8 * w * s, py - y * s, px + e * w * s, py - (y - 0.2) * s)
            for y, e in ((3.3, 0.7), (2.9, 0.3), (2.5, 0.6))
        ]
        stage.fill(lines, (236, 238, 240), z, 0.0)
        return
    stage.fill([bar(px - half, py - 2.2 * s, px + half, py)], (128, 130, 134), z)
    if kind == 'stop':
        rim = ellipse(px, py - 2.55 * s, 0.52 * s, 0.52 * s, corners=8)
        stage.fill([rim], (236, 236, 236), z, 0.0)
        face = ellipse(px, py - 2.55 * s, 0.46 * s, 0.46 * s, corners=8)
        stage.fill([face], (200, 24, 32), z, 0.02)
        words = bar(px - 0.32 * s, py - 2.65 * s, px + 0.32 * s, py - 2.45 * s)
        stage.fill([words], (240, 236, 236), z, 0.0)
        return
    for size, colour in ((0.6, (200, 30, 32)), (0.42, (240, 232, 150))):
        y = py - 2.55 * s
        corners = [(px - size * s, y + size * 0.8 * s), (px + size * s, y + size * 0.8 * s)]
        stage.fill([np.array([*corners, (px, y - size * s)])], colour, z, 0.02)


def streetlight(stage: Stage, x: float, z: float) -> None:
    """Paint a lamp post with its arm over the road."""
    px, py, s = _foot(stage, x, z)
    inward = -1 if x > 0 else 1
    half = max(0.08 * s, 0.9)
    ground_shadow(stage, x, z, 0.3, 5.5)
    stage.start('streetlight')
    tone = (86, 92, 96)
    stage.fill([bar(px - half, py - 6.2 * s, px + half, py)], tone, z)
    end = px + inward * 1.7 * s
    arm = [(px, py - 6.2 * s), (end, py - 6.6 * s), (end, py - 6.6 * s + 2 * half)]
    stage.fill([np.array([*arm, (px, py - 6.2 * s + 2 * half)])], tone, z)
    stage.fill([ellipse(end, py - 6.5 * s, 0.5 * s, 0.2 * s)], (248, 240, 206), z, 0.0)


def fence(stage: Stage, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Paint posts and rails between two ground points (X, Z); the gaps count as fence."""
    camera = stage.camera
    line = np.linspace(start, end, max(2, round(np.hypot(*np.subtract(end, start)) / 1.6) + 1))
    paint = ((196, 188, 172), (126, 96, 66), (232, 230, 224))[stage.rng.integers(3)]

    def strip(low: float, high: float) -> np.ndarray:
        points = [(x, low, z) for x, z in line] + [(x, high, z) for x, z in line[::-1]]
        return camera.project(np.array(points))

    stage.start('fence')
    far = float(line[:, 1].mean())
    # The band belongs to the fence, as annotators draw it, though the meadow shows through.
    stage.claim(strip(0.1, 1.15))
    stage.fill([strip(0.35, 0.55), strip(0.85, 1.05)], paint, far, 0.1)
    posts = []
    for x, z in line:
        px, py, s = _foot(stage, x, z)
        posts.append(bar(px - max(0.09 * s, 0.7), py - 1.2 * s, px + max(0.09 * s, 0.7), py))
    stage.fill(posts, shaded(paint, 0.85), far, 0.1)


def balloon(stage: Stage, x: float, y: float, size: float) -> None:
    """Paint a hot-air balloon, a thing that belongs to no class."""
    stage.start(None)
    colours = stage.rng.permutation(len(PAINTS))[:2]
    basket = bar(x - 0.16 * size, y + 1.3 * size, x + 0.16 * size, y + 1.55 * size)
    stage.fill([basket], (110, 80, 50), 40.0)
    for share, index in zip((1.0, 0.62, 0.25), (*colours, colours[0]), strict=True):
        top = ellipse(x, y, share * size, size)
        cone = [(x - 0.8 * share * size, y + 0.6 * size), (x + 0.8 * share * size, y + 0.6 * size)]
        cone += [(x + 0.14 * size, y + 1.25 * size), (x - 0.14 * size, y + 1.25 * size)]
        stage.fill([top, np.array(cone)], PAINTS[index], 40.0, 0.02, 0.12)


def bin_(stage: Stage, x: float, z: float) -> None:
    """Paint a litter bin, which belongs to no class either."""
    px, py, s = _foot(stage, x, z)
    contact_shadow(stage, x, z, 0.6)
    stage.start(None)
    stage.fill([bar(px - 0.28 * s, py - 0.85 * s, px + 0.28 * s, py)], (50, 74, 60), z, 0.1)
    stage.fill([bar(px - 0.33 * s, py - 0.98 * s, px + 0.33 * s, py - 0.82 * s)], (34, 48, 42), z)
