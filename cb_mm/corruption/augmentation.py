"""Corruption in training: one random corruption, or AugMix's mixture of simple operations.

Chance comes from numpy's global generator alone, which cb_mm's samplers seed for every sample: the
same seed gives the same images for any number of workers, and after resuming.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS

from ..errors import UserError
from .mixing import GEOMETRIC, PHOTOMETRIC, apply_operation
from .registry import CORRUPTIONS, SEVERITIES, corrupt, find_corruption
from .suites import SUITES, cells_for
from .transform import change_rgb, check_channel_order, check_image, fresh_generator

#: Corruptions that move what is in the image, which its labels do not follow.
MOVING = ('elastic_transform', 'elastic_displacement')
#: Keys of labels that have a place in the image.
_PLACED = ('gt_seg_map', 'gt_bboxes', 'gt_masks')


def training_corruptions(held_out: str | None) -> list[str]:
    """Return ImageNet-C's 19 corruptions without those of a suite, and without those that move.

    Args:
        held_out: The suite that the model will be tested with; None for none.
    """
    tested = _tested(held_out)
    known = [name for name, entry in CORRUPTIONS.items() if entry.imagenet_c is not None]
    return [name for name in known if name not in tested and name not in MOVING]


def _tested(suite: str | None) -> set[str]:
    return set() if suite is None else {cell.name for cell in cells_for(suite)}


def _check_names(names: Sequence[str], held_out: str | None, where: str) -> None:
    """Refuse corruptions of the test: a model that has seen them is not tested fairly."""
    tested = _tested(held_out)  # without names, too: an unknown suite is a mistake
    seen = [name for name in names if name in tested]
    if seen:
        raise UserError(
            f'{where}: {seen[0]} is one of the corruptions of {held_out}; a model that trains on '
            'it cannot be tested fairly with that suite. Leave it out, or set held_out=None (or '
            f'the suite that you test with: {", ".join(list(SUITES)[1:])}).'
        )


class _TrainingCorruption(BaseTransform):
    """What both have in common: their chance, and the colour order of the image."""

    #: What it chooses from.
    operations: list[str]

    def __init__(self, prob: float, channel_order: str) -> None:
        name = type(self).__name__
        if not 0 <= prob <= 1:
            raise UserError(f'prob={prob!r} of {name} must be between 0 and 1')
        check_channel_order(channel_order, name)
        self.prob, self.channel_order = prob, channel_order

    def change(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a changed copy of an image (uint8, RGB or grey-scale)."""
        raise NotImplementedError

    def transform(self, results: dict) -> dict:
        """Replace ``results['img']`` with probability ``prob``."""
        where = f'{type(self).__name__}, image {results.get("img_path") or "without path"}'
        check_image(results.get('img'), where)
        placed = [key for key in _PLACED if key in results]
        moving = [name for name in self.operations if name in (*MOVING, *GEOMETRIC)]
        if placed and moving:
            raise UserError(
                f'{where}: the sample has {placed[0]}, which would stay in its place while '
                f'{moving[0]} moves the image; leave it out.'
            )
        rng = fresh_generator()
        if rng.random() < self.prob:
            change_rgb(results, self.channel_order, lambda rgb: self.change(rgb, rng))
        return results


@TRANSFORMS.register_module()
class RandomCorruption(_TrainingCorruption):
    """Corrupt a training image with one of several corruptions at one of several severities.

    Required Keys:

    - img: uint8, or float32 with whole numbers from 0 to 255; colour or grey-scale

    Modified Keys:

    - img: same shape and type

    Args:
        names: Corruptions to choose from; by default `training_corruptions` of ``held_out``.
        severities: Severities to choose from.
        prob: Chance that an image is corrupted at all.
        held_out: The suite of the later test: none of its corruptions may be trained on. None
            allows all.
        channel_order: As in ImageCorruption.
    """

    def __init__(
        self,
        names: Sequence[str] | None = None,
        severities: Sequence[int] = (1, 2, 3),
        prob: float = 0.5,
        held_out: str | None = 'imagenet-c',
        channel_order: str = 'auto',
    ) -> None:
        super().__init__(prob, channel_order)
        self.names = list(training_corruptions(held_out) if names is None else names)
        self.operations = self.names
        self.severities = list(severities)
        for name in self.names:
            find_corruption(name)
        _check_names(self.names, held_out, 'names of RandomCorruption')
        if not self.names or not self.severities:
            raise UserError('RandomCorruption needs at least one of names and of severities')
        for severity in self.severities:
            CORRUPTIONS[self.names[0]].level_of(severity)

    def change(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the image with one corruption."""
        name = self.names[rng.integers(len(self.names))]
        severity = self.severities[rng.integers(len(self.severities))]
        return corrupt(image, name, rng, severity=severity)

    def __repr__(self) -> str:
        return (
            f'{type(self).__name__}(names={self.names}, severities={self.severities}, '
            f'prob={self.prob:g}, channel_order={self.channel_order!r})'
        )


@TRANSFORMS.register_module()
class AugMix(_TrainingCorruption):
    """Mix an image with chains of simple operations (Hendrycks et al., AugMix, ICLR 2020).

    ``width`` chains of one to three operations each are mixed with weights of a Dirichlet
    distribution, and the mixture with the image itself by a weight of a Beta distribution. The
    paper's consistency loss (Jensen-Shannon) is not part of it: this is the augmentation alone.

    By default only operations that leave everything in its place: autocontrast, equalize, posterize
    and solarize. The paper's five others rotate, shear and shift the image; ``geometric=True`` adds
    them, for classification alone, since boxes and label maps would stay where they are.

    Required Keys:

    - img: uint8, or float32 with whole numbers from 0 to 255; colour or grey-scale

    Modified Keys:

    - img: same shape and type

    Args:
        severity: Strength of the operations, up to 10. The authors' code has 1 for ImageNet and 3
            for CIFAR.
        width: Number of chains.
        depth: Operations of a chain; None for one to three, by chance.
        alpha: Of both distributions.
        geometric: Also rotate, shear and shift.
        corruptions: Names of corruptions that are operations too, at severities 1 to 3.
        prob: Chance that an image is changed at all.
        held_out: As in RandomCorruption.
        channel_order: As in ImageCorruption.
    """

    def __init__(
        self,
        severity: float = 3,
        width: int = 3,
        depth: int | None = None,
        alpha: float = 1.0,
        geometric: bool = False,
        corruptions: Sequence[str] = (),
        prob: float = 1.0,
        held_out: str | None = 'imagenet-c',
        channel_order: str = 'auto',
    ) -> None:
        super().__init__(prob, channel_order)
        for name in corruptions:
            find_corruption(name)
        _check_names(corruptions, held_out, 'corruptions of AugMix')
        for option, value, low, high, kind in (
            ('severity', severity, 0.1, 10, (int, float)),
            ('width', width, 1, 100, int),
            ('depth', 1 if depth is None else depth, 1, 100, int),
        ):
            if not isinstance(value, kind) or not low <= value <= high:
                whole = 'a whole number ' if kind is int else ''
                raise UserError(f'{option}={value!r} of AugMix must be {whole}from {low} to {high}')
        if not 0 < alpha < math.inf:
            raise UserError(f'alpha={alpha!r} of AugMix must be positive')
        self.severity, self.width, self.depth, self.alpha = severity, width, depth, alpha
        self.geometric, self.corruptions = geometric, list(corruptions)
        self.operations = [*PHOTOMETRIC, *(GEOMETRIC if geometric else ()), *corruptions]

    def change(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the mixture."""
        weights = rng.dirichlet([self.alpha] * self.width)
        share = rng.beta(self.alpha, self.alpha)
        mixed = np.zeros(image.shape, np.float32)
        for weight in weights:
            chain = image
            for _ in range(self.depth or int(rng.integers(1, 4))):
                name = self.operations[rng.integers(len(self.operations))]
                chain = self._operate(chain, name, rng)
            mixed += np.float32(weight) * chain
        mixed = np.float32(1 - share) * image + np.float32(share) * mixed
        return np.rint(np.clip(mixed, 0, 255)).astype(np.uint8)

    def _operate(self, image: np.ndarray, name: str, rng: np.random.Generator) -> np.ndarray:
        if name in CORRUPTIONS:
            return corrupt(image, name, rng, severity=SEVERITIES[rng.integers(3)])
        return apply_operation(image, name, self.severity, rng)

    def __repr__(self) -> str:
        settings: dict[str, Any] = {
            name: getattr(self, name)
            for name in ('severity', 'width', 'depth', 'alpha', 'operations', 'prob')
        }
        told = ', '.join(f'{name}={value!r}' for name, value in settings.items())
        return f'{type(self).__name__}({told})'
