"""A map laid over its image, pixel for pixel."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
from PIL import Image

from .maps import at_image, normalise
from .tokens import Tokens

#: Perceptually uniform, and safe for colour-blind readers.
COLOURS = 'inferno'


def overlay(
    image: np.ndarray,
    values: np.ndarray,
    tokens: Tokens,
    threshold: float = 0.0,
    opacity: float = 0.7,
) -> np.ndarray:
    """Draw the map in colour over the greyed image: uint8 (H, W, 3) at the image's size.

    Args:
        image: RGB, uint8 (H, W, 3), of any size.
        values: The map, (rows, columns).
        tokens: Where the map's cells are.
        threshold: Smaller values, on the scale 0 to 1 of `normalise`, are not drawn.
        opacity: Of the colours, 0 to 1.
    """
    scaled = normalise(at_image(values, tokens, image.shape[:2]), threshold)
    drawn = np.isfinite(scaled)
    colours = matplotlib.colormaps[COLOURS](np.nan_to_num(scaled))[..., :3]
    weight = opacity * drawn[..., None]
    mixed = grey(image) * (1 - weight) + 255 * colours * weight
    return mixed.round().clip(0, 255).astype(np.uint8)


def grey(image: np.ndarray) -> np.ndarray:
    """Remove half of the colour, so that only the map has strong colours; float (H, W, 3)."""
    luma = image @ np.array([0.299, 0.587, 0.114])
    return 0.35 * image + 0.65 * luma[..., None]


def encode(image: np.ndarray, kind: str = 'png', **options: int) -> bytes:
    """Return an image file in memory."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return stream.getvalue()
