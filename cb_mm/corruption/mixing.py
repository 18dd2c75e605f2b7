"""The operations of AugMix, on Pillow: pure functions of image, strength and chance.

Those that ImageNet-C tests (colour, contrast, brightness and sharpness) are not among them, as in
the paper.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageOps

#: Leave everything in its place.
PHOTOMETRIC = ('autocontrast', 'equalize', 'posterize', 'solarize')
#: Move what is in the image.
GEOMETRIC = ('rotate', 'shear_x', 'shear_y', 'translate_x', 'translate_y')


def apply_operation(
    image: np.ndarray, name: str, severity: float, rng: np.random.Generator
) -> np.ndarray:
    """Apply one operation at a random strength up to ``severity``, of 10.

    Args:
        image: uint8, RGB or grey-scale; it is not changed.
        name: One of ``PHOTOMETRIC`` and ``GEOMETRIC``.
        severity: The largest strength, from 0.1 to 10.
        rng: Draws the strength, and the direction of a geometric operation.
    """
    picture = Image.fromarray(image.reshape(image.shape[:2]) if image.shape[2:] == (1,) else image)
    level = rng.uniform(0.1, max(severity, 0.1)) / 10
    if name in GEOMETRIC:
        changed = _move(picture, name, level if rng.random() < 0.5 else -level)
    elif name == 'autocontrast':
        changed = ImageOps.autocontrast(picture)
    elif name == 'equalize':
        changed = ImageOps.equalize(picture)
    elif name == 'posterize':
        changed = ImageOps.posterize(picture, max(1, 4 - int(4 * level)))
    elif name == 'solarize':
        changed = ImageOps.solarize(picture, 256 - int(256 * level))
    else:
        raise KeyError(name)
    return np.asarray(changed).reshape(image.shape)


def _move(picture: Image.Image, name: str, level: float) -> Image.Image:
    """Rotate by up to 30 degrees, shear by up to 0.3, or shift by up to a third of the side."""
    bilinear = Image.Resampling.BILINEAR
    if name == 'rotate':
        return picture.rotate(int(30 * level), resample=bilinear)
    width, height = picture.size
    matrices = {
        'shear_x': (1, 0.3 * level, 0, 0, 1, 0),
        'shear_y': (1, 0, 0, 0.3 * level, 1, 0),
        'translate_x': (1, 0, int(width * level / 3), 0, 1, 0),
        'translate_y': (1, 0, 0, 0, 1, int(height * level / 3)),
    }
    return picture.transform(
        picture.size, Image.Transform.AFFINE, matrices[name], resample=bilinear
    )
