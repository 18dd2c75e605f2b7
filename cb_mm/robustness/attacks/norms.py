"""The distances that bound an attack: how to start, to step and to stay within ε.

L∞ is the largest change of a value, in grey levels. L2 is the root of the sum of all squared
changes, over the pixels and channels of the image that the model gets, in grey levels: what papers
give for images from 0 to 1, times 255.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

LINF, L2 = 'linf', 'l2'


class Norm(Protocol):
    """A distance between two images (3 x H x W)."""

    @staticmethod
    def length(change: Tensor) -> Tensor:
        """Return the distance, for a difference of two images."""

    @staticmethod
    def start(shape: Sequence[int], epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """Draw a change, evenly among those within ε."""

    @staticmethod
    def direction(gradient: Tensor) -> Tensor:
        """Return the change of length 1 that raises a function with this gradient most."""

    @staticmethod
    def project(image: Tensor, clean: Tensor, epsilon: float) -> Tensor:
        """Return the nearest image that is within ε of the clean one."""


class Linf:
    """The largest change of a value."""

    @staticmethod
    def length(change: Tensor) -> Tensor:
        """See `Norm`."""
        return change.abs().max()

    @staticmethod
    def start(shape: Sequence[int], epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """See `Norm`."""
        return rng.uniform(-epsilon, epsilon, shape)

    @staticmethod
    def direction(gradient: Tensor) -> Tensor:
        """See `Norm`."""
        return gradient.sign()

    @staticmethod
    def project(image: Tensor, clean: Tensor, epsilon: float) -> Tensor:
        """See `Norm`."""
        return torch.maximum(torch.minimum(image, clean + epsilon), clean - epsilon)


class L2Norm:
    """The root of the sum of squared changes."""

    @staticmethod
    def length(change: Tensor) -> Tensor:
        """See `Norm`."""
        # A sum of a million squares loses digits in single precision.
        return torch.linalg.vector_norm(change.double())

    @staticmethod
    def start(shape: Sequence[int], epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """See `Norm`."""
        change = rng.standard_normal(shape)
        radius = epsilon * rng.random() ** (1 / change.size)
        return change * (radius / np.linalg.norm(change))

    @staticmethod
    def direction(gradient: Tensor) -> Tensor:
        """See `Norm`."""
        length = L2Norm.length(gradient)
        # A gradient of zero has no direction.
        return (gradient / length.clamp(min=torch.finfo(gradient.dtype).tiny)).to(gradient.dtype)

    @staticmethod
    def project(image: Tensor, clean: Tensor, epsilon: float) -> Tensor:
        """See `Norm`."""
        change = image - clean
        length = L2Norm.length(change)
        inner = clean + (change * (epsilon / length)).to(change.dtype)
        return torch.where(length > epsilon, inner, image)


NORMS: dict[str, Any] = {LINF: Linf, L2: L2Norm}
