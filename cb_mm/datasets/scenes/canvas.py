"""The canvas the scenes are painted on: a camera, a light, and polygons with labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import cv2
import numpy as np

from .classes import SCENE_LABELS, SCENE_THINGS

#: Everything is painted this much larger and then averaged down: smooth edges in the image and
#: hard ones in the labels, from the same polygons.
SUPERSAMPLE = 2

_TILE = 256

RGB = tuple[float, float, float]


def shaded(colour: RGB, light: float) -> RGB:
    """Return a colour in more or less light."""
    red, green, blue = colour
    return light * red, light * green, light * blue


@lru_cache(maxsize=16)
def noise_tile(roughness: float) -> np.ndarray:
    """Return fractal noise that wraps around, [256, 256], mean 0 and standard deviation 1.

    ``roughness`` 0 is smooth as clouds, 1 is grainy as asphalt.
    """
    white = np.random.default_rng(20_000 + int(roughness * 100)).standard_normal((_TILE, _TILE))
    frequency = np.hypot(np.fft.fftfreq(_TILE)[:, None], np.fft.fftfreq(_TILE)[None])
    frequency[0, 0] = np.inf
    tile = np.fft.ifft2(np.fft.fft2(white) / frequency ** (2.0 - 1.6 * roughness)).real
    return (tile / tile.std()).astype(np.float32)


def sample_noise(roughness: float, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Sample noise at any coordinates [H, W] (in tile pixels), interpolated and wrapped."""
    # Wrapped by hand: OpenCV keeps coordinates in 16 bits, and the horizon is far away.
    x, y = (np.float32(v) - _TILE * np.floor(np.float32(v) / _TILE) for v in (columns, rows))
    return cv2.remap(
        noise_tile(roughness),
        x,
        y,
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_WRAP,
    )


@dataclass(frozen=True)
class Camera:
    """A level pinhole camera over a flat world: X right, Y up, Z ahead, all in metres."""

    height: float
    horizon: float
    focal: float
    centre: float

    def project(self, points: np.ndarray) -> np.ndarray:
        """Project world points [n, 3] to pixels [n, 2] (x, y)."""
        points = np.asarray(points, dtype=np.float64)
        scale = self.focal / np.maximum(points[:, 2], 0.5)
        return np.stack(
            [
                self.centre + points[:, 0] * scale,
                self.horizon + (self.height - points[:, 1]) * scale,
            ],
            axis=1,
        )

    def scale(self, z: float) -> float:
        """Return the pixels per metre at distance ``z``."""
        return self.focal / z

    def ground(self, shape: tuple[int, int]) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the first row below the horizon, and world X and Z [H - first, W] below it."""
        first = min(int(np.ceil(self.horizon)), shape[0] - 1)
        below = np.arange(first, shape[0], dtype=np.float32)[:, None] + 0.5 - self.horizon
        z = (self.height * self.focal / below).astype(np.float32)
        across = ((np.arange(shape[1]) - self.centre) / self.focal).astype(np.float32)
        return first, across[None] * z, np.repeat(z, shape[1], axis=1)


@dataclass(frozen=True)
class Light:
    """Time of day: colours of the sky, strength and side of the sun, and how thick the air is."""

    zenith: RGB
    horizon: RGB
    tint: RGB
    shadow: float
    side: int
    haze: float


@dataclass
class Instance:
    """One countable thing, or a crowd of them that is annotated as a whole."""

    category: int
    crowd: bool


@dataclass
class Stage:
    """The scene while it is painted: later polygons cover earlier ones in every layer.

    ``image`` is RGB float32 [H, W, 3] in 0-255, ``labels`` uint8 [H, W] and ``owners`` int32 [H, W]
    (index of the instance plus one, 0 for none), all at the supersampled size.
    """

    image: np.ndarray
    labels: np.ndarray
    owners: np.ndarray
    camera: Camera
    light: Light
    rng: np.random.Generator
    instances: list[Instance] = field(default_factory=list)
    _label: int = 0
    _owner: int = 0

    def start(self, label: str | None, thing: str | None = None, crowd: bool = False) -> None:
        """Assign the next polygons to class ``label`` and, if given, to a new ``thing``."""
        self._label = SCENE_LABELS[label] if label else 0
        self._owner = 0
        if thing:
            self.instances.append(Instance(SCENE_THINGS[thing], crowd))
            self._owner = len(self.instances)

    def hazed(self, colour: RGB, z: float) -> np.ndarray:
        """Return ``colour`` as seen through ``z`` metres of air, in this light."""
        clear = np.exp(-z / self.light.haze)
        lit = np.asarray(colour) * np.asarray(self.light.tint)
        return clear * lit + (1 - clear) * np.asarray(self.light.horizon)

    def _region(self, polygons: list[np.ndarray]) -> tuple[slice, slice, np.ndarray] | None:
        """Return rows, columns and mask of the pixels inside ``polygons``; None if out of view."""
        height, width = self.labels.shape
        # Far outside the picture the exact place of a corner does not matter, but overflow would.
        whole = [
            np.clip(np.rint(p), -4 * width, 5 * width).astype(np.int32) for p in polygons if len(p)
        ]
        if not whole:
            return None
        corners = np.concatenate(whole)
        left, top = np.maximum(corners.min(axis=0), 0)
        right, bottom = np.minimum(corners.max(axis=0) + 1, (width, height))
        if left >= right or top >= bottom:
            return None
        mask = np.zeros((bottom - top, right - left), np.uint8)
        for polygon in whole:  # one at a time: together, overlaps would cancel out
            cv2.fillPoly(mask, [polygon - (left, top)], 1)
        return slice(top, bottom), slice(left, right), mask.view(bool)

    def fill(
        self,
        polygons: list[np.ndarray],
        colour: RGB,
        z: float,
        grain: float = 0.04,
        shade: float = 0.0,
    ) -> None:
        """Paint ``polygons`` (pixels, [n, 2] each) at distance ``z`` in the current class.

        ``grain`` is the relative strength of the surface's texture; ``shade`` lightens the top
        and darkens the bottom by that fraction.
        """
        region = self._region(polygons)
        if region is None:
            return
        rows, columns, mask = region
        y, x = np.nonzero(mask)
        bright = np.ones(len(y), np.float32)
        if grain:
            bright += grain * noise_tile(0.7)[(y + rows.start) % _TILE, (x + columns.start) % _TILE]
        if shade:
            bright += shade * (1 - 2 * y / max(mask.shape[0] - 1, 1)).astype(np.float32)
        self.image[rows, columns][y, x] = self.hazed(colour, z) * bright[:, None]
        self.labels[rows, columns][y, x] = self._label
        self.owners[rows, columns][y, x] = self._owner

    def claim(self, polygon: np.ndarray) -> None:
        """Assign what is seen through ``polygon`` to the current class without painting over it."""
        region = self._region([polygon])
        if region is not None:
            rows, columns, mask = region
            self.labels[rows, columns][mask] = self._label
            self.owners[rows, columns][mask] = self._owner

    def darken(self, polygon: np.ndarray, strength: float) -> None:
        """Darken what is there with a shadow; classes are unchanged."""
        region = self._region([polygon])
        if region is not None:
            rows, columns, mask = region
            self.image[rows, columns][mask] *= np.float32(1 - strength * self.light.shadow)


def ellipse(x: float, y: float, rx: float, ry: float, corners: int = 18) -> np.ndarray:
    """Return the polygon [corners, 2] of an ellipse in the picture."""
    angle = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return np.stack([x + rx * np.cos(angle), y + ry * np.sin(angle)], axis=1)


def bar(x0: float, y0: float, x1: float, y1: float) -> np.ndarray:
    """Return the polygon of an upright rectangle in the picture."""
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], dtype=np.float64)
