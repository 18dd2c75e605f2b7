"""Pipeline steps for ViLT: its resizing, its augmentation, and packing."""

from __future__ import annotations

import mmcv
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from PIL import Image
from timm.data.auto_augment import RandAugment, rand_augment_ops

#: RandAugment's operations without inversion and cut-out: questions ask for colours and details.
_OPERATIONS = [
    'AutoContrast', 'Equalize', 'Rotate', 'Posterize', 'Solarize', 'Color', 'Contrast',
    'Brightness', 'Sharpness', 'ShearX', 'ShearY', 'TranslateXRel', 'TranslateYRel',
]  # fmt: skip


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
    """RandAugment without inversion and cut-out, by timm.

    Required and modified keys: img (BGR, uint8).

    Args:
        operations: How many per image.
        magnitude: Of each, from 0 to 10.
    """

    def __init__(self, operations: int = 2, magnitude: float = 9) -> None:
        self.operations, self.magnitude = operations, magnitude
        ops = rand_augment_ops(
            magnitude=magnitude,
            prob=1.0,
            hparams=dict(img_mean=(128, 128, 128)),
            transforms=_OPERATIONS,
        )
        self._augment = RandAugment(ops, operations)

    def transform(self, results: dict) -> dict:
        """Change the image."""
        picture = Image.fromarray(np.ascontiguousarray(results['img'][..., ::-1]))
        results['img'] = np.ascontiguousarray(np.asarray(self._augment(picture))[..., ::-1])
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
