"""A picture to corrupt, and how much a corruption changed it."""

from __future__ import annotations

import numpy as np


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def scene(height: int = 97, width: int = 131) -> np.ndarray:
    """A made-up picture with smooth parts, edges, texture, black and white."""
    y, x = np.mgrid[:height, :width]
    image = np.stack([127 + 100 * np.sin(x / 17), 255 * y / height, 200 - x % 50], -1)
    image[height // 3 : height // 2, width // 4 : width // 2] = (250, 30, 20)
    image[height // 2 :, width // 2 :] += rng(9).normal(0, 20, 3)
    image[-9:, :9], image[:9, -9:] = 0, 255
    return np.clip(image, 0, 255).astype(np.uint8)


def damage(image: np.ndarray, changed: np.ndarray) -> float:
    return float(np.mean((changed.astype(float) - image) ** 2))
