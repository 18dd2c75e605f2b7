"""Twenty-one corruptions as pure functions: ``name(image, level, rng) -> image``.

``image`` is uint8 RGB, H x W x 3, and is never modified; ``level`` is in the unit of the
corruption (see ``cb_mm.corruption.CORRUPTIONS``); all randomness comes from ``rng``. The nineteen
of ImageNet-C follow its published definitions and parameters, written on OpenCV and numpy; results
are rounded to the nearest grey level, where ImageNet-C rounds down. The ice of frost
is drawn, unless photographs are given.
"""

# Importing a file registers its corruptions; the order here is the order of the table.
from .noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise  # isort: skip
from .blur import defocus_blur, gaussian_blur, glass_blur, motion_blur, zoom_blur

from .weather import fog, snow, spatter  # isort: skip
from .frost import frost  # isort: skip
from .digital import (
    brightness,
    contrast,
    elastic_displacement,
    elastic_transform,
    jpeg_compression,
    occlusion,
    pixelate,
    saturate,
)

__all__ = [
    'brightness',
    'contrast',
    'defocus_blur',
    'elastic_displacement',
    'elastic_transform',
    'fog',
    'frost',
    'gaussian_blur',
    'gaussian_noise',
    'glass_blur',
    'impulse_noise',
    'jpeg_compression',
    'motion_blur',
    'occlusion',
    'pixelate',
    'saturate',
    'shot_noise',
    'snow',
    'spatter',
    'speckle_noise',
    'zoom_blur',
]
