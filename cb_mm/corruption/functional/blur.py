"""Blur: every pixel becomes a mean of pixels near it."""

from __future__ import annotations

import math

import cv2
import numpy as np

from ..registry import corruption

# OpenCV switches from summing to Fourier transforms at kernels of 130 taps. Summing is much faster
# for mostly empty kernels, so they are cut into pieces below that size.
_SUMMED_AREA = 121
_STRIP = 1 << 16  # values that are worked on at a time, so that they stay in the cache


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


def smooth_widely(fields: np.ndarray, sigma: float, truncate: float) -> np.ndarray:
    """Convolve fields (N x H x W) with a wide Gaussian; beyond their borders they are mirrored.

    A mirrored field is a sum of cosines, and only the few that a wide Gaussian lets through are
    computed: of white noise, all but 0.0001 of its deviation. That takes a third of the time of the
    convolution at 20 pixels and a hundredth at 170. The sums are in float64, so that the order in
    which the threads of a matrix product add makes no difference to a picture.
    """
    (along_y, kept_y), (along_x, kept_x) = (
        _passing_waves(size, sigma, truncate) for size in fields.shape[1:]
    )
    waves = along_y @ fields @ along_x.T
    waves *= np.outer(kept_y, kept_x)
    return along_y.T @ waves @ along_x


def _passing_waves(size: int, sigma: float, truncate: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosines that a Gaussian lets through (K x size, orthonormal), and their shares."""
    count = min(size, int(6 * size / (np.pi * sigma)) + 2)  # beyond them, less than exp(-6**2 / 2)
    pace = np.pi / size * np.arange(count)
    kernel = gaussian_kernel(sigma, truncate)
    radius = kernel.size // 2
    shares = np.cos(np.outer(pace, np.arange(-radius, radius + 1))) @ kernel
    cosines = np.sqrt(2 / size) * np.cos(np.outer(pace, np.arange(size) + 0.5))
    cosines[0] = np.sqrt(1 / size)
    return cosines, shares


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
    distances = np.arange(int(level) + 1)
    halves = np.floor(np.sqrt(level**2 - distances**2)).astype(int)  # half height, from the middle
    area = np.float32((2 * halves + 1).sum() * 2 - (2 * halves[0] + 1))
    rim = int(level > 3)
    margin = int(level) + rim
    padded = cv2.copyMakeBorder(image, *[margin] * 4, cv2.BORDER_REFLECT_101).astype(np.uint16)
    result = np.empty_like(image)
    rows = max(1, _STRIP // image[0].size)
    for top in range(0, len(image), rows):
        mean = _disk_sums(padded[top : top + rows + 2 * margin], halves.tolist())
        mean /= area
        if rim:
            mean = smooth(mean, 0.5, truncate=2)[1:-1, 1:-1]
        cv2.convertScaleAbs(mean, dst=result[top : top + rows])
    return result


def _disk_sums(image: np.ndarray, halves: list[int]) -> np.ndarray:
    """Add up a disk around each pixel but those of the margin, which is a radius wide (float32).

    Args:
        image: H x W x 3, uint16 of at most 255.
        halves: how far the disk reaches up and down, by the distance from its middle column.
    """
    radius = len(halves) - 1
    height, width = (side - 2 * radius for side in image.shape[:2])
    # Sums over columns of the disk, from the lowest at its rim to the highest in its middle.
    column = image[radius : radius + height].copy()
    shape = (height, width, image.shape[2])
    part, total = np.zeros(shape, np.uint16), np.zeros(shape, np.float32)
    reached = summed = 0
    for distance in range(radius, -1, -1):
        for offset in range(reached + 1, halves[distance] + 1):
            column += image[radius + offset : radius + offset + height]
            column += image[radius - offset : radius - offset + height]
        reached = halves[distance]
        for left in sorted({radius - distance, radius + distance}):
            if summed + 2 * reached + 1 > 65535 // 255:  # the next could exceed 16 bits
                total += part.astype(np.float32)
                part[:] = summed = 0
            part += column[:, left : left + width]
            summed += 2 * reached + 1
    total += part.astype(np.float32)
    return total


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
    # As one number, the three channels of a pixel move together.
    pixels = cv2.cvtColor(smooth(image, sigma), cv2.COLOR_RGB2RGBA).view(np.uint32)[..., 0]
    for _ in range(rounds):
        _jumble(pixels, reach, rng)
    channels = pixels[..., None].view(np.uint8)
    return smooth(cv2.cvtColor(channels, cv2.COLOR_RGBA2RGB), sigma)


def _jumble(pixels: np.ndarray, reach: int, rng: np.random.Generator) -> None:
    """Take each pixel (H x W) from a random place at most ``reach`` away, in place.

    ImageNet-C walks from the last pixel to the first and overwrites each. What it takes from below,
    or from further right in the same row, has been overwritten already. So rows are taken whole,
    from the last to the first, and a pixel that takes from its right takes from where that one did.
    """
    height, width = pixels.shape
    # The walk leaves a margin, so that no pixel is taken from outside.
    rows, columns = height - 2 * reach, width - 2 * reach
    if min(rows, columns) < 1:
        return
    side = 2 * reach
    drawn = _small_integers(side * side, (rows, columns), rng)
    down, right = np.divmod(np.arange(256), side)  # from the corner of the neighbourhood
    places = cv2.LUT(drawn, (down * width + right + 1).astype(np.int32))
    places += np.arange(columns, dtype=np.int32)

    ahead = np.where(down == reach, np.maximum(right - reach, 0), 0).astype(np.uint8)
    steps = cv2.LUT(drawn, ahead)
    for margin in range(1, reach):  # pixels right of the walk are never overwritten
        steps[:, -margin:][steps[:, -margin:] >= margin] = 0
    steps, flat = steps.ravel(), places.ravel()
    chained = np.flatnonzero(steps > 0)
    ends = chained + steps.take(chained)
    going = np.flatnonzero(steps.take(ends) > 0)
    while going.size:
        ends[going] += steps.take(ends[going])
        going = going[steps.take(ends[going]) > 0]
    flat[chained] = flat.take(ends)

    state, taken = pixels.ravel(), np.empty(columns, pixels.dtype)
    for row in range(rows - 1, -1, -1):
        neighbourhood = state[(row + 1) * width :]
        neighbourhood.take(places[row], out=taken, mode='clip')  # all are inside: nothing to clip
        pixels[row + reach + 1, reach + 1 : reach + 1 + columns] = taken


def _small_integers(below: int, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return what ``rng.integers(below, size=shape, dtype=np.uint8)`` does, from fewer steps."""
    if 256 % below:
        return rng.integers(below, size=shape, dtype=np.uint8)
    # numpy scales the bytes of 32-bit words. Without a remainder it rejects none of them.
    words = rng.integers(1 << 32, size=-(-math.prod(shape) // 4), dtype=np.uint32)
    drawn = words.astype('<u4', copy=False).view(np.uint8)[: math.prod(shape)].reshape(shape)
    return cv2.LUT(drawn, (np.arange(256) * below >> 8).astype(np.uint8))
