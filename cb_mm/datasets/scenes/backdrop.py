"""Sky, mountains, water and ground: what is behind and below everything else."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from .canvas import RGB, Camera, Light, Stage, sample_noise
from .classes import SCENE_LABELS

#: world X and Z of each pixel below the horizon -> mask of the pixels in a region
Region = Callable[[np.ndarray, np.ndarray], np.ndarray]

# zenith, horizon, tint of the light, depth of the shadows, metres of sight
_MOODS = {
    'noon': ((84, 146, 222), (198, 222, 242), (1.16, 1.15, 1.1), 0.46, 520),
    'overcast': ((156, 166, 178), (214, 218, 222), (0.98, 1.0, 1.03), 0.14, 260),
    'evening': ((96, 104, 164), (252, 192, 136), (1.14, 0.97, 0.83), 0.4, 340),
    'morning': ((132, 172, 208), (240, 230, 212), (1.12, 1.08, 1.0), 0.3, 150),
}


def draw_light(rng: np.random.Generator) -> Light:
    """Draw a time of day; clear noon is the most common."""
    zenith, horizon, tint, shadow, haze = _MOODS[
        rng.choice(list(_MOODS), p=(0.45, 0.25, 0.15, 0.15))
    ]
    jitter = rng.normal(0, 6, 3)
    return Light(
        zenith=tuple(np.asarray(zenith) + jitter),
        horizon=tuple(np.asarray(horizon) + jitter),
        tint=tint,
        shadow=shadow,
        side=int(rng.choice((-1, 1))),
        haze=haze * rng.uniform(0.8, 1.3),
    )


def draw_camera(rng: np.random.Generator, shape: tuple[int, int]) -> Camera:
    """Draw a camera height between a raised hand and an upper floor, looking level."""
    height, width = shape
    return Camera(
        height=float(rng.uniform(1.9, 4.5)),
        horizon=float(height * rng.uniform(0.34, 0.52)),
        focal=float(width * rng.uniform(0.75, 1.05)),
        centre=float(width * rng.uniform(0.44, 0.56)),
    )


def _air(stage: Stage, elevation: np.ndarray, cover: float, drift: np.ndarray) -> np.ndarray:
    """Return the colour of the sky, RGB float32 [n, W, 3]; ``elevation`` [n] in picture heights.

    Water reflects the same sky: it calls this with the depth below the horizon.
    """
    elevation = elevation.astype(np.float32)[:, None]
    blend = np.clip(1.6 * elevation, 0, 1)[..., None] ** 0.7
    low, high = (np.asarray(c, np.float32) for c in (stage.light.horizon, stage.light.zenith))
    sky = (1 - blend) * low + blend * high
    width = stage.labels.shape[1]
    columns = (np.arange(width, dtype=np.float32) / width - 0.5)[None]
    far = 1 / (elevation + 0.12)
    rows = np.repeat(26 * far + drift[0], width, axis=1)
    clouds = sample_noise(0.15, rows, 60 * columns * far + drift[1])
    clouds = np.clip(0.7 * (clouds + 2 * cover - 1), 0, 0.85) * np.clip(5 * elevation, 0, 1)
    white = 0.55 * np.float32(255) + 0.45 * low
    return sky + clouds[..., None] * (white - sky)


class Backdrop:
    """Painter of the regions of the world: first the sky, then layer by layer the ground."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.first, self.x, self.z = stage.camera.ground(stage.labels.shape)
        height = stage.labels.shape[0]
        self.elevation = abs(np.arange(height) + 0.5 - stage.camera.horizon) / height
        self.cover = float(stage.rng.uniform(0.1, 0.8))
        self.drift = stage.rng.uniform(0, 256, 2)

    def sky(self) -> None:
        """Paint everything above the horizon."""
        rows = slice(0, self.first)
        air = _air(self.stage, self.elevation[rows], self.cover, self.drift)
        self.stage.image[rows] = air
        self.stage.labels[rows] = SCENE_LABELS['sky']

    def mountains(self, ridges: int) -> None:
        """Paint ranges one behind the other, the far ones paler."""
        stage, rng = self.stage, self.stage.rng
        stage.start('mountain')
        height, width = stage.labels.shape
        columns = np.arange(width)
        for ridge in range(ridges):
            far = ridges - ridge
            line = sample_noise(
                0.2,
                np.full((1, width), rng.uniform(0, 256)),
                (rng.uniform(0, 256) + columns * rng.uniform(70, 130) / width)[None],
            )[0]
            top = stage.camera.horizon - height * (
                0.02 + 0.05 * far * np.clip(1 + 0.8 * line, 0, 2.4)
            )
            outline = np.stack([columns, top], axis=1)
            base = [(width, stage.camera.horizon + 2), (0, stage.camera.horizon + 2)]
            tone = ((104, 112, 116), (92, 108, 84), (120, 104, 92))[rng.integers(3)]
            stage.fill([np.concatenate([outline, base])], tone, 110 * far, grain=0.07, shade=0.2)

    def _lay(self, label: str, mask: np.ndarray, surface: np.ndarray) -> None:
        # OpenCV copies masked pixels in place, several times faster than indexing with the mask.
        cv2.copyTo(surface.astype(np.float32), mask.view(np.uint8), self.stage.image[self.first :])
        self.stage.labels[self.first :][mask] = SCENE_LABELS[label]

    def ground(self, label: str, region: Region, colour: RGB, grain: float, pitch: float) -> None:
        """Cover a region with a textured surface, ``pitch`` tile pixels of texture per metre."""
        light = self.stage.light
        fine = sample_noise(0.8, pitch * self.z, pitch * self.x) / (1 + self.z / 25)
        coarse = sample_noise(0.3, 0.12 * pitch * self.z, 0.12 * pitch * self.x)
        bright = 1 + np.float32(grain) * (fine + 0.5 * coarse)
        clear = np.exp(-self.z[:, :1] / np.float32(light.haze))
        lit = np.asarray(colour, np.float32) * np.asarray(light.tint, np.float32)
        far = np.asarray(light.horizon, np.float32)
        surface = (clear * bright)[..., None] * lit + (1 - clear)[..., None] * far
        self._lay(label, region(self.x, self.z), surface)

    def water(self, region: Region) -> None:
        """Paint water that mirrors the sky, calm or with ripples."""
        surface = _air(self.stage, self.elevation[self.first :], self.cover, self.drift)
        swell = np.float32(self.stage.rng.choice((0.02, 0.06, 0.1)))
        ripples = sample_noise(0.6, 14 * self.z, 3 * self.x) / (1 + self.z / 40)
        surface *= (np.float32(0.95) + swell * ripples)[..., None]
        self._lay('water', region(self.x, self.z), surface)

    def markings(self, region: Region) -> None:
        """Paint white lines on the road; they are still labelled road."""
        mask = region(self.x, self.z)
        paint = np.float32(self.stage.hazed((232, 230, 222), 15.0))
        image = self.stage.image[self.first :]
        image[mask] = 0.25 * image[mask] + 0.75 * paint
