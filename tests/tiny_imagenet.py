"""A folder in ImageNet's layout, small enough for a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

#: Three of ImageNet-1K's folders: labels 0, 1 and 207.
SYNSETS = ('n01440764', 'n01443537', 'n02099601')


def write_pictures(
    folder: Path, names: Sequence[str], each: int, seed: int = 0, size: tuple[int, int] = (40, 56)
) -> Path:
    """``folder/NAME/x_K.jpg``: a class has a colour of its own, an image its own noise."""
    rng = np.random.default_rng(seed)
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for k in range(each):
            colour = np.array([40 + 60 * number, 200 - 50 * number, 90])
            image = np.clip(colour + rng.normal(0, 30, (*size, 3)), 0, 255).astype(np.uint8)
            cv2.imwrite(str(folder / name / f'{name}_{k}.jpg'), image)
    return folder


def write_imagenet(
    root: Path, train: int = 4, val: int = 2, names: Sequence[str] = SYNSETS
) -> Path:
    """``root/train`` and ``root/val``."""
    write_pictures(root / 'train', names, train, seed=0)
    write_pictures(root / 'val', names, val, seed=1)
    return root


#: Options that make a step of any classification config cheap.
SMALL_STEP = (
    'model.backbone.img_size=32',
    'train_dataloader.batch_size=4',
    'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False',
    'val_dataloader.num_workers=0',
    'val_dataloader.persistent_workers=False',
    'test_dataloader.num_workers=0',
    'test_dataloader.persistent_workers=False',
    'train_cfg.max_epochs=1',
    'default_hooks.logger.interval=1',
)


def small_steps(cifar: bool = False) -> list[str]:
    """``SMALL_STEP`` and images of 32 × 32, for ImageNet's or CIFAR's pipeline."""
    first = 0 if cifar else 1
    options = [*SMALL_STEP, f'train_dataloader.dataset.pipeline.{first}.scale=32']
    for split in ('val', 'test'):
        where = f'{split}_dataloader.dataset.pipeline'
        options += [f'{where}.1.scale=(32,32)'] if cifar else [
            f'{where}.1.scale=36', f'{where}.2.crop_size=32',
        ]  # fmt: skip
    return options
