"""Weather: fog, snow and spatter, all drawn from noise (frost is in its own file)."""

from __future__ import annotations

import cv2
import numpy as np

from ..registry import corruption
from .blur import smooth, streak

_SEVERITY = 'severity of ImageNet-C, which sets several parameters together'

# How much fog is added, and how fast its waves fade with their length.
_FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))


@corruption(levels=(1, 2, 3, 4, 5), valid=(1, 5), unit=_SEVERITY, random=True, whole=True)
def fog(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Add a bright cloud and darken the sum, so that the brightest value stays the brightest."""
    amount, fading = _FOG[int(level) - 1]
    brightest = float(image.max())
    scale = brightest / (brightest + 255 * amount)
    veil = cloud(image.shape[0], image.shape[1], fading, rng)
    veil = cv2.convertScaleAbs(veil, alpha=255 * amount * scale)
    return cv2.addWeighted(image, scale, cv2.merge([veil] * 3), 1, 0)


def cloud(height: int, width: int, fading: float, rng: np.random.Generator) -> np.ndarray:
    """Return fractal noise between 0 and 1, float32, by the diamond-square algorithm.

    It covers a periodic square whose side is a power of two; the image is a corner of it. Waves of
    half the length are ``fading ** 2`` times weaker. Both are as in ImageNet-C, where the image is
    also scaled by the extremes of the square, not by its own.
    """
    octaves = int(max(height, width) - 1).bit_length()
    field = np.zeros((1, 1), np.float32)
    # Waves of the ninth octave are too weak to see, so the field is drawn small and enlarged.
    for octave in range(min(octaves, 8)):
        noise = rng.random((3, *field.shape), dtype=np.float32)
        noise *= 2
        noise -= 1
        noise *= fading ** (-2 * octave)
        # The square is periodic. One row and one column more spare copies that are rolled around.
        side = len(field)
        around = np.empty((side + 1, side + 1), np.float32)
        around[:-1, :-1], around[-1, :-1] = field, field[0]
        around[:, -1] = around[:, 0]
        pairs = around[:-1] + around[1:]
        centres = np.empty_like(around)  # after those before them
        centres[1:, 1:] = (pairs[:, :-1] + pairs[:, 1:]) / 4 + noise[0]
        centres[0, 1:] = centres[-1, 1:]
        centres[:, 0] = centres[:, -1]
        finer = np.empty((2 * side, 2 * side), np.float32)
        finer[::2, ::2] = field
        finer[1::2, 1::2] = centres[1:, 1:]
        finer[1::2, ::2] = (pairs[:, :-1] + centres[1:, 1:] + centres[1:, :-1]) / 4 + noise[1]
        rows = field + around[:-1, 1:]
        finer[::2, 1::2] = (rows + centres[1:, 1:] + centres[:-1, 1:]) / 4 + noise[2]
        field = finer
    field -= field.min()
    field /= max(float(field.max()), 1e-12)
    # Only the corner, and a cell beyond it that the last pixels are mixed with: the square of a
    # panorama would not fit into memory.
    factor = (1 << octaves) // len(field)
    corner = field[: -(-height // factor) + 1, : -(-width // factor) + 1]
    size = corner.shape[1] * factor, corner.shape[0] * factor
    enlarged = cv2.resize(corner, size, interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(enlarged[:height, :width])


# Mean and spread of the flakes' noise, their size, the threshold below which nothing falls, the
# reach and width of the streaks, and the share of the image that is not whitened.
_SNOW = (
    (0.1, 0.3, 3.0, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2.0, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4.0, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)


@corruption(levels=(1, 2, 3, 4, 5), valid=(1, 5), unit=_SEVERITY, random=True, whole=True)
def snow(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Whiten the scene and let flakes fall through it, in two directions."""
    mean, spread, size, threshold, reach, sigma, kept = _SNOW[int(level) - 1]
    height, width = image.shape[:2]
    # One cell more than fits: with an integer ratio all flakes would align with the pixel grid.
    rows, columns = int(np.ceil(height / size)) + 1, int(np.ceil(width / size)) + 1
    flakes = mean + spread * rng.standard_normal((rows, columns), dtype=np.float32)
    flakes = cv2.resize(flakes, (width, height), interpolation=cv2.INTER_LINEAR)
    flakes = np.where(flakes < threshold, 0, np.minimum(flakes, 1))
    flakes = streak(flakes, sigma, 2 * reach + 1, rng.uniform(-135, -45))
    flakes += cv2.rotate(flakes, cv2.ROTATE_180)

    flakes *= 255
    white = 1.5 * cv2.cvtColor(image, cv2.COLOR_RGB2GRAY).astype(np.float32) + 127.5
    share = np.float32(1 - kept)
    return cv2.merge(
        [
            cv2.convertScaleAbs(channel + share * np.maximum(white - channel, 0) + flakes)
            for channel in cv2.split(image)
        ]
    )


# Mean and spread of the liquid's noise, the size of its drops, the threshold above which it sticks,
# and for water its brightness, for mud the softness of its rim.
_WATER = ((0.65, 0.3, 4, 0.69, 0.6), (0.65, 0.3, 3, 0.68, 0.6), (0.65, 0.3, 2, 0.68, 0.5))
_MUD = ((0.65, 0.3, 1, 0.65, 1.5), (0.67, 0.4, 1, 0.65, 1.5))
_TURQUOISE = (175, 238, 238)
_BROWN = (63, 42, 20)
_LIGHT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)  # from the upper left


@corruption(
    levels=(1, 2, 3, 4, 5),
    valid=(1, 5),
    unit=_SEVERITY,
    random=True,
    whole=True,
    imagenet_c='extra',
)
def spatter(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Splash the lens: drops of water at severities 1 to 3, of mud at 4 and 5."""
    wet = level <= 3
    mean, spread, size, threshold, last = (_WATER + _MUD)[int(level) - 1]
    liquid = mean + spread * rng.standard_normal(image.shape[:2], dtype=np.float32)
    liquid = smooth(liquid, size)
    liquid[liquid < threshold] = 0
    if wet:
        shine = _shine(liquid) * liquid
        shine *= last / max(float(shine.max()), 1e-6)
        coat = [cv2.convertScaleAbs(shine, alpha=colour) for colour in _TURQUOISE]
        return cv2.add(image, cv2.merge(coat))
    cover = smooth((liquid > 0).astype(np.float32), last)
    cover[cover < 0.8] = 0
    return cv2.merge(
        [
            cv2.convertScaleAbs(channel + cover * (np.float32(colour) - channel))
            for channel, colour in zip(cv2.split(image), _BROWN, strict=True)
        ]
    )


def _shine(liquid: np.ndarray) -> np.ndarray:
    """Return the brightness of a drop at each pixel, 0 to 255: its rim, lit from one side."""
    rim = cv2.Canny((255 * liquid).astype(np.uint8), 50, 150)
    distance = cv2.distanceTransform(255 - rim, cv2.DIST_L2, cv2.DIST_MASK_5)
    height = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(height), cv2.CV_8U, _LIGHT)
    return cv2.blur(relief.astype(np.float32), (3, 3))
