"""Light, colour and coding: brightness, contrast, saturation, JPEG, pixels, warping, a mask."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np

from ..registry import corruption
from .blur import smooth, smooth_widely

_VALUES = np.arange(256, dtype=np.float64)


@corruption(
    levels=(0.1, 0.2, 0.3, 0.4, 0.5),
    valid=(0, 1),
    unit='brightness added, as a share of white',
    random=False,
)
def brightness(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Raise the value V of HSV by ``level``; hue and saturation stay."""
    # With hue and saturation fixed, V scales the three channels alike: one factor per V.
    raised = np.minimum(_VALUES + 255 * level, 255)
    factors = (raised / np.maximum(_VALUES, 1)).astype(np.float32)
    channels = cv2.split(image)
    highest = _highest(*channels)
    factor = cv2.LUT(highest, factors)
    result = cv2.merge([cv2.convertScaleAbs(factor * channel) for channel in channels])
    result[highest == 0] = round(255 * level)  # black has no channel to scale: it becomes grey
    return result


@corruption(
    levels=(0.4, 0.3, 0.2, 0.1, 0.05),
    valid=(0, 1),
    unit='share of the contrast that is left',
    random=False,
)
def contrast(image: np.ndarray, level: float, rng: np.random.Generator | None = None) -> np.ndarray:
    """Draw every channel towards its mean over the image."""
    means = np.array(cv2.mean(image)[:3])
    table = (_VALUES[:, None] - means) * level + means
    return cv2.LUT(image, np.rint(table).astype(np.uint8).reshape(1, 256, 3))


@corruption(
    levels=(0.3, 0.1, 2, 5, 20),
    valid=(0, 100),
    unit='factor of the saturation; 1 changes nothing',
    random=False,
    imagenet_c='extra',
)
def saturate(image: np.ndarray, level: float, rng: np.random.Generator | None = None) -> np.ndarray:
    """Multiply the saturation of HSV by ``level``; strong factors add a little, as ImageNet-C does.

    Greys have no hue; like the colour conversions of ImageNet-C they count as red.
    """
    added = np.float32(np.interp(level, (2, 5, 20), (0, 0.1, 0.2)))
    channels = cv2.split(image)
    value = _highest(*channels).astype(np.float32)
    chroma = value - cv2.min(cv2.min(*channels[:2]), channels[2])
    wanted = np.minimum(chroma * np.float32(level) + value * added, value)
    factor = wanted / np.maximum(chroma, 1)
    # Saturation moves each channel away from V, or towards it.
    results = [cv2.convertScaleAbs(value + factor * (channel - value)) for channel in channels]
    if added:
        grey = chroma == 0
        for result in results[1:]:
            result[grey] = np.rint(value - wanted)[grey]
    return cv2.merge(results)


def _highest(red: np.ndarray, green: np.ndarray, blue: np.ndarray) -> np.ndarray:
    """Return the largest channel of each pixel (OpenCV is ten times faster than numpy here)."""
    return cv2.max(cv2.max(red, green), blue)


@corruption(
    levels=(25, 18, 15, 10, 7),
    valid=(1, 100),
    unit='JPEG quality',
    random=False,
    whole=True,
)
def jpeg_compression(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Code as JPEG with quality ``level`` and decode again."""
    quality = [cv2.IMWRITE_JPEG_QUALITY, int(level)]
    # The same bits as from Pillow, in two thirds of its time.
    _, coded = cv2.imencode('.jpg', cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)
    return cv2.cvtColor(cv2.imdecode(coded, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


@corruption(
    levels=(0.6, 0.5, 0.4, 0.3, 0.25),
    valid=(0.01, 1),
    unit='side length that is left, as a share',
    random=False,
)
def pixelate(image: np.ndarray, level: float, rng: np.random.Generator | None = None) -> np.ndarray:
    """Shrink by averaging, then enlarge again without smoothing.

    Both by the box filter of Pillow, as in ImageNet-C: along x, rounded, then along y. Rows are
    faster to add and to copy than pixels, so the image is turned for the columns.
    """
    height, width = image.shape[:2]
    narrow = _mean_rows(cv2.transpose(image), max(int(width * level), 1))
    small = _mean_rows(cv2.transpose(narrow), max(int(height * level), 1))
    wide = _repeat_rows(cv2.transpose(small), width)
    return _repeat_rows(cv2.transpose(wide), height)


def _mean_rows(image: np.ndarray, count: int) -> np.ndarray:
    """Average the rows that Pillow's box filter averages for ``count`` rows, with its rounding."""
    rows = image.reshape(len(image), -1)
    means = np.empty((count, rows.shape[1]), np.uint8)
    for size, at, first in _boxes(len(image), count):
        total: np.ndarray = rows.take(first, axis=0)
        total = total.astype(np.uint16 if size <= 4 else np.uint32)
        for step in range(1, size):
            total += rows.take(first + step, axis=0)
        if size <= 4:
            total += size // 2
            total //= size
        else:  # the share as Pillow has it, in units of 2 ** -22, which is not exact
            total *= round(2**22 / size)
            total += 1 << 21
            total >>= 22
        means[at] = total
    return means.reshape(count, *image.shape[1:])


@lru_cache(maxsize=64)
def _boxes(length: int, count: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return which of ``length`` rows are averaged for each of ``count``, by the size of the box.

    Each entry has a size, the averages of that many rows, and the first row of each.
    """
    scale = length / count
    centre = (np.arange(count) + 0.5) * scale
    first, stop = (centre - 0.5 * scale + 0.5).astype(int), (centre + 0.5 * scale + 0.5).astype(int)
    # A row on the edge of two boxes may end up in neither, as floating point has it.
    first += (first - centre + 0.5) * (1 / scale) <= -0.5
    stop -= (stop - 1 - centre + 0.5) * (1 / scale) > 0.5
    sizes = stop - first
    groups = [(size, np.flatnonzero(sizes == size)) for size in np.unique(sizes).tolist()]
    return [(size, at, first[at]) for size, at in groups]


def _repeat_rows(image: np.ndarray, count: int) -> np.ndarray:
    """Enlarge to ``count`` rows: each is the row below whose middle it lies."""
    return image.take(((np.arange(count) + 0.5) * (len(image) / count)).astype(np.intp), axis=0)


# In pixels: the largest displacement before smoothing, the width of the smoothing, and how far the
# corners of a triangle in the middle of the image may go, each in both directions.
_ELASTIC = (
    (488, 170.8, 24.4),
    (488, 19.52, 48.8),
    (12.2, 2.44, 4.88),
    (17.08, 2.44, 4.88),
    (29.28, 2.44, 4.88),
)
_WIDE = 10  # pixels of smoothing, from which on its waves are faster


@corruption(
    levels=(1, 2, 3, 4, 5),
    valid=(1, 5),
    unit='severity of ImageNet-C, which sets the affine map and the displacement together',
    random=True,
    whole=True,
    note='it moves the image, but not the labels of a segmentation or detection data set',
)
def elastic_transform(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Map the image by a random affine map, then displace every pixel by a smooth random field.

    Severities 1 and 2 are mostly the affine map, 3 to 5 mostly the displacement, as in ImageNet-C.
    Its parameters are in pixels of a 224² crop, and stay so in images of any size (our reading).
    """
    largest, sigma, reach = _ELASTIC[int(level) - 1]
    height, width = image.shape[:2]
    middle, side = np.array([height // 2, width // 2]), min(height, width) // 3
    # ImageNet-C takes (row, column) for (x, y): in an image that is not square, the triangle is
    # elsewhere, but the map is as random.
    corners = (middle + side * np.array([[1, 1], [1, -1], [-1, -1]])).astype(np.float32)
    moved = corners + rng.uniform(-reach, reach, corners.shape).astype(np.float32)
    if side:  # a triangle without area has no map
        affine = cv2.getAffineTransform(corners, moved)
        image = cv2.warpAffine(image, affine, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    grid = np.indices((height, width), dtype=np.float32)
    noise = rng.random(grid.shape, dtype=np.float32) * (2 * largest) - largest
    if sigma > _WIDE:
        noise = smooth_widely(noise, sigma, truncate=3)
    else:
        for one in noise:
            one[:] = smooth(one, sigma, truncate=3, border=cv2.BORDER_REFLECT)
    grid += noise[::-1]  # along x first
    return cv2.remap(image, grid[1], grid[0], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


@corruption(
    levels=(12.5, 16.25, 21.25, 25, 30),
    valid=(0, 250),
    unit='gain of the random displacement, about 0.08 pixels (root mean square) each',
    random=True,
    imagenet_c=None,
    note='the elastic_transform of the package imagecorruptions: no affine map, so milder',
)
def elastic_displacement(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Displace every pixel by a smooth random field; the size of its waves follows the image's."""
    height, width = image.shape[:2]
    grid = np.indices((height, width), dtype=np.float32)
    largest = 0.005 * height * level
    # Displacements along y, then along x; their waves are a hundredth of the image long.
    for axis in grid:
        noise = rng.random((height, width), dtype=np.float32) * (2 * largest) - largest
        axis += smooth(noise, (0.01 * height, 0.01 * width), truncate=3, border=cv2.BORDER_REFLECT)
    return cv2.remap(image, grid[1], grid[0], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


@corruption(
    levels=(0.2, 0.3, 0.4, 0.5, 0.6),
    valid=(0, 1),
    unit='side of the square as a share of the shorter side of the image',
    random=False,
    imagenet_c=None,
)
def occlusion(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Blacken a central square; 0.5 on a square image is the centre occlusion of the paper."""
    height, width = image.shape[:2]
    side = round(level * min(height, width))
    top, left = (height - side) // 2, (width - side) // 2
    result = image.copy()
    result[top : top + side, left : left + side] = 0
    return result
