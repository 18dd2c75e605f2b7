"""Pipeline steps for ViLT: its resizing, its augmentation, and packing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mmcv
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from PIL import Image, ImageEnhance, ImageOps


def _either_way(value: float) -> float:
    return -value if random.random() > 0.5 else value


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


def _solarize_brighter(image: Image.Image, share: float) -> Image.Image:
    brighter = np.asarray(image).astype(np.int64) + int(110 * share)
    return ImageOps.solarize(Image.fromarray(brighter.clip(0, 255).astype(np.uint8)), 128)


def _enhance(kind: Callable) -> Callable[[Image.Image, float], Image.Image]:
    return lambda image, share: kind(image).enhance(0.1 + 1.8 * share)


#: ViLT's operations, of an image and a share of the largest strength.
_OPERATIONS: list[Callable[[Image.Image, float], Image.Image]] = [
    lambda image, share: ImageOps.autocontrast(image),
    lambda image, share: ImageOps.equalize(image),
    lambda image, share: image.rotate(_either_way(30 * share)),
    lambda image, share: ImageOps.posterize(image, max(int(4 * share), 1)),
    lambda image, share: ImageOps.solarize(image, math.ceil(256 * share)),
    _solarize_brighter,
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
    lambda image, share: _affine(image, 1, _either_way(0.3 * share), 0, 0, 1, 0),
    lambda image, share: _affine(image, 1, 0, 0, _either_way(0.3 * share), 1, 0),
    lambda image, share: _affine(image, 1, 0, _either_way(100 * share), 0, 1, 0),
    lambda image, share: _affine(image, 1, 0, 0, 0, 1, _either_way(100 * share)),
]


@TRANSFORMS.register_module()
class ViltResize(BaseTransform):
    """Resize as ViLT: short side to a number, long side limited, both multiples of a patch.

    Required keys: img. Modified keys: img, img_shape.

    Args:
        shorter: Length of the short side; the long side is at most 1333 / 800 times that.
        patch: Both sides are rounded down to multiples of it.
    """

    def __init__(self, shorter: int = 384, patch: int = 32) -> None:
        self.shorter, self.patch = shorter, patch

    def transform(self, results: dict) -> dict:
        """Resize the image with a bicubic filter."""
        height, width = results['img'].shape[:2]
        scale = self.shorter / min(height, width)
        longer = int(1333 / 800 * self.shorter)
        scale = min(scale, longer / max(height, width))
        size = [
            max(int(side * scale + 0.5) // self.patch, 1) * self.patch for side in (width, height)
        ]
        results['img'] = mmcv.imresize(
            results['img'], tuple(size), interpolation='bicubic', backend='pillow'
        )
        results['img_shape'] = results['img'].shape[:2]
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}(shorter={self.shorter}, patch={self.patch})'


@TRANSFORMS.register_module()
class ViltRandAugment(BaseTransform):
    """RandAugment as in ViLT's fine-tuning: without inversion and cut-out.

    Each operation has a fixed strength; shears, shifts and rotations go either way.
    Required and modified keys: img (BGR, uint8).

    Args:
        operations: How many per image.
        magnitude: Of each, from 0 to 30. ViLT's 9 is less than a third of the way.
    """

    def __init__(self, operations: int = 2, magnitude: float = 9) -> None:
        self.operations, self.magnitude = operations, magnitude

    def transform(self, results: dict) -> dict:
        """Change the image."""
        picture = Image.fromarray(np.ascontiguousarray(results['img'][..., ::-1]))
        for operation in random.choices(_OPERATIONS, k=self.operations):
            picture = operation(picture, self.magnitude / 30)
        results['img'] = np.ascontiguousarray(np.asarray(picture)[..., ::-1])
        return results

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.operations}, {self.magnitude})'


@TRANSFORMS.register_module()
class PackVQAInputs(BaseTransform):
    """Pack the image as a tensor (3, H, W), and the question with its answers beside it.

    Required keys: img and those of VQAv2Dataset. Added keys: inputs, data_samples.
    """

    _KEYS = (
        'img_path', 'question', 'question_id', 'answers', 'answer_type', 'answer_labels',
        'answer_scores',
    )  # fmt: skip

    def transform(self, results: dict) -> dict:
        """Return the packed sample alone."""
        image = torch.from_numpy(np.ascontiguousarray(results['img'].transpose(2, 0, 1)))
        sample = BaseDataElement(metainfo={key: results[key] for key in self._KEYS})
        return dict(inputs=image, data_samples=sample)
