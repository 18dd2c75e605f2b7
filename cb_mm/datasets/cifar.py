"""CIFAR-10 and CIFAR-100 from their archives, or from folders of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mmengine.registry import DATASETS
from mmpretrain.datasets import CIFAR10, CIFAR100

from ..errors import UserError
from ..fileio.images import read_image
from .class_labels import class_names, labels_of


@DATASETS.register_module()
class CIFAR10Images(CIFAR10):
    """mmpretrain's CIFAR-10 that never downloads by itself and also reads folders.

    ``data_root`` holds either ``cifar-10-batches-py``, the unpacked archive of the Python version
    (mmpretrain compares its checksums before it opens it), or the same images as files in
    ``train/CLASS/`` and ``test/CLASS/``. Images are in memory, 180 MB for all, and BGR as
    mmcv loads any other: mmpretrain's own are RGB, and tools that open a file would mix up both.
    """

    def load_data_list(self) -> list[dict]:
        """Return one dict per image: ``img`` (32 x 32 x 3, BGR) and ``gt_label``."""
        root = Path(self.data_prefix['root'])
        if (root / self.base_folder).is_dir():
            self.download = False
            if not self._check_integrity():
                raise UserError(
                    f'{root / self.base_folder} is not the complete Python version of '
                    f'{self.filename.removesuffix("-python.tar.gz").upper()}. '
                    f'Unpack {self.filename} again.'
                )
            found = super().load_data_list()
            return [{**each, 'img': _bgr(each['img'])} for each in found]
        folder = root / self.split
        if not folder.is_dir():
            raise UserError(
                f'{root} holds neither {self.base_folder} (unpack {self.url} there) nor the folder '
                f'{self.split} of class folders.'
            )
        names = class_names(root / 'train' if (root / 'train').is_dir() else folder)
        label_of = labels_of(names, 'sorted')
        self._metainfo['classes'] = tuple(names)
        return [
            {'img': _bgr(read_image(file)), 'img_path': str(file), 'gt_label': label_of[name]}
            for name in class_names(folder)
            for file in sorted((folder / name).iterdir())
            if self._is_image(file)
        ]

    @staticmethod
    def _is_image(file: Path) -> bool:
        return file.suffix.lower() in ('.png', '.jpg', '.jpeg', '.bmp')


@DATASETS.register_module()
class CIFAR100Images(CIFAR10Images, CIFAR100):
    """CIFAR-100 in the same way; its archive's folder is ``cifar-100-python``."""


def _bgr(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image[..., ::-1])
