"""Blur: every pixel becomes a mean of pixels near it."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np

from ..registry import corruption

# OpenCV switches from summing to Fourier transforms at kernels of 130 taps. Summing is much faster
# for mostly empty kernels, so they are cut into pieces below that size.
_SUMMED_AREA = 121


def gaussian_kernel(sigma: float, truncate: float = 4.0) -> np.ndarray:
    """Sample a normal curve up to ``truncate`` sigmas, with sum 1 (2 r + 1 samples)."""
    radius = int(truncate * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-6)) ** 2)
    return weights / weights.sum()


def smooth(
    image: np.ndarray,
    sigma: float | tuple[float, float],
    truncate: float = 4.0,
    border: int = cv2.BORDER_REPLICATE,
) -> np.ndarray:
    """Convolve with a Gaussian of ``sigma`` pixels, or (along y, along x); type and shape are kept.

    The sums are in float32 and rounded once, unlike those of cv2.GaussianBlur, which rounds the
    weights of a uint8 image to 1/256 and is then up to 1.3 grey levels off.
    """
    along_y, along_x = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    kernels = [gaussian_kernel(s, truncate).astype(np.float32) for s in (along_x, along_y)]
    return cv2.sepFilter2D(image, -1, *kernels, borderType=border)


def streak(image: np.ndarray, sigma: float, length: int, angle: float) -> np.ndarray:
    """Drag a float32 image along a line, with weights that fall like half a normal curve.

    Args:
        image: H x W or H x W x C, float32.
        sigma: width of the curve in pixels.
        length: number of pixels of the line that count.
        angle: direction of the line in degrees, 0 along x.
    """
    steps = np.arange(length)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    # Where each weight takes its pixel from, relative to the pixel that is computed.
    line = np.rint(np.outer(steps, (np.sin(np.radians(angle)), np.cos(np.radians(angle)))))
    line = line.astype(int)
    reach = int(np.abs(line).max()) + 1
    padded = cv2.copyMakeBorder(image, *[reach] * 4, cv2.BORDER_REPLICATE)
    result = np.zeros_like(image)
    start = 0
    while start < length:
        stop = start + 1
        while stop < length and np.prod(np.ptp(line[start : stop + 1], 0) + 1) <= _SUMMED_AREA:
            stop += 1
        _add_moved(padded, line[start:stop] + reach, weights[start:stop], result)
        start = stop
    return result


def _add_moved(
    source: np.ndarray, places: np.ndarray, weights: np.ndarray, total: np.ndarray
) -> None:
    """Add to ``total`` the windows of ``source`` whose first pixels (y, x) are at ``places``."""
    (top, left), (bottom, right) = places.min(axis=0), places.max(axis=0)
    kernel = np.zeros((bottom - top + 1, right - left + 1), np.float32)
    np.add.at(kernel, (places[:, 0] - top, places[:, 1] - left), weights)
    height, width = total.shape[:2]
    window = source[top : bottom + height, left : right + width]
    cv2.add(total, cv2.filter2D(window, -1, kernel, anchor=(0, 0))[:height, :width], dst=total)


@corruption(
    levels=(1, 2, 3, 4, 6),
    valid=(0, 100),
    unit='standard deviation in pixels',
    random=False,
    imagenet_c='extra',
    paper=(1, 2),
)
def gaussian_blur(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Blur with a Gaussian of ``level`` pixels; the border is extended by its nearest pixel.

    ImageNet-C cuts the kernel at 4 sigma. This one ends at 3.5, which is an eighth faster: the rest
    changes less than 0.25 grey levels in the worst case (0.00047 x 255, twice).
    """
    return smooth(image, level, truncate=3.5)


@corruption(
    levels=(3, 4, 6, 8, 10),
    valid=(0, 100),
    unit='radius of the disk in pixels',
    random=False,
)
def defocus_blur(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Defocus the lens: average over a disk of radius ``level``, its rim softened above 3."""
    rows = np.arange(int(level) + 1)
    halves = np.floor(np.sqrt(level**2 - rows**2)).astype(int)  # half width of the disk, row by row
    total, box = np.zeros(image.shape, np.float32), np.empty(image.shape, np.float32)
    # A disk is a stack of boxes: the columns that are new at each width reach ``tall`` rows up and
    # down. A box costs the same at any size, the disk as a kernel would cost its area.
    for inner, outer in pairwise([-1, *sorted(set(halves.tolist()))]):
        tall = int(rows[halves >= outer].max())
        for half, combine in ((outer, cv2.add), (inner, cv2.subtract)):
            if half >= 0:
                size = 2 * half + 1, 2 * tall + 1
                cv2.boxFilter(image, cv2.CV_32F, size, dst=box, normalize=False)
                combine(total, box, dst=total)
    total /= float((2 * halves + 1).sum() * 2 - (2 * halves[0] + 1))
    if level > 3:
        total = smooth(total, 0.5, truncate=2, border=cv2.BORDER_REFLECT_101)
    return cv2.convertScaleAbs(total)


@corruption(
    levels=(3, 5, 8, 12, 15),
    valid=(0, 100),
    unit='standard deviation of the streak in pixels',
    random=True,
)
def motion_blur(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Smear every pixel along one random direction within 45 degrees of horizontal."""
    angle = rng.uniform(-45, 45)
    if level == 0:
        return image.copy()
    # The reach of ImageNet-C at its five widths, and in proportion to the width beyond them.
    reach = np.interp(level, (0, 3, 5, 12, 15, 100), (0, 10, 15, 15, 20, 400 / 3))
    streaked = streak(image.astype(np.float32), level, 2 * round(reach) + 1, angle)
    return cv2.convertScaleAbs(streaked)


@corruption(
    levels=(1.11, 1.15, 1.20, 1.24, 1.30),
    valid=(1, 4),
    unit='largest zoom',
    random=False,
)
def zoom_blur(
    image: np.ndarray, level: float, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Zoom during the exposure: average the image over zooms from 1 to ``level``."""
    step = np.interp(level, (1.15, 1.20, 1.24, 1.30), (0.01, 0.02, 0.02, 0.03))
    zooms = np.linspace(1, level, round((level - 1) / step) + 1)
    source = image.astype(np.float32)
    total = source.copy()  # ImageNet-C counts the image itself twice
    for zoom in zooms:
        cv2.accumulate(zoom_in(source, zoom), total)
    return cv2.convertScaleAbs(total, alpha=1 / (len(zooms) + 1))


def zoom_in(image: np.ndarray, zoom: float) -> np.ndarray:
    """Enlarge the middle of an image by ``zoom`` (at least 1), keeping its shape."""
    height, width = image.shape[:2]
    rows, columns = int(np.ceil(height / zoom)), int(np.ceil(width / zoom))
    top, left = (height - rows) // 2, (width - columns) // 2
    size = max(round(columns * zoom), width), max(round(rows * zoom), height)
    larger = cv2.resize(
        image[top : top + rows, left : left + columns], size, interpolation=cv2.INTER_LINEAR
    )
    return larger[:height, :width]


_GLASS = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))


@corruption(
    levels=(1, 2, 3, 4, 5),
    valid=(1, 5),
    unit='severity of ImageNet-C, which sets blur, reach and rounds together',
    random=True,
    whole=True,
)
def glass_blur(image: np.ndarray, level: float, rng: np.random.Generator) -> np.ndarray:
    """Look through frosted glass: blur, take each pixel from a random neighbour, blur again."""
    sigma, reach, rounds = _GLASS[int(level) - 1]
    height, width = image.shape[:2]
    places: np.ndarray = np.arange(height * width, dtype=np.int32)
    for _ in range(rounds):
        places = places.take(_jumble(height, width, reach, rng))
    pixels = smooth(image, sigma).reshape(-1, 3)
    return smooth(pixels.take(places, axis=0).reshape(image.shape), sigma)


def _jumble(height: int, width: int, reach: int, rng: np.random.Generator) -> np.ndarray:
    """Return where each pixel comes from after one round of jumbling (flat indices).

    ImageNet-C walks from the last pixel to the first and overwrites each with a pixel at most
    ``reach`` away. A pixel it takes from further on has been overwritten already, so its origin is
    the origin of that one: a chain, followed here for all pixels at once by doubling the stride.
    """
    source: np.ndarray = np.zeros((height, width), np.int32)
    # The walk leaves a margin, so that no pixel is taken from outside.
    walked = source[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1]
    steps = np.arange(-reach, reach, dtype=np.int32)
    moves = np.add.outer(width * steps, steps).ravel()
    walked[:] = moves.take(rng.integers(moves.size, size=walked.shape, dtype=np.uint8))
    source = source.ravel()
    is_open = source > 0
    source += np.arange(source.size, dtype=np.int32)
    unfinished = np.flatnonzero(is_open)
    while unfinished.size:
        via = source.take(unfinished)
        ends, still = source.take(via), is_open.take(via)
        source[unfinished], is_open[unfinished] = ends, still
        unfinished = unfinished[still]
    return source
