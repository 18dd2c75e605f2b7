"""Very small data sets in the layouts of Cityscapes, ACDC, Dark Zurich, VOC and COCO-Stuff."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from PIL import Image

#: Colour per class, in each image one field of every class that occurs in it.
_COLOURS = np.random.default_rng(7).integers(0, 256, (256, 3))


def _pair(image: Path, labels: Path, classes: int, seed: int, size: tuple[int, int]) -> None:
    """Fields of a few classes with a line of 255 between; an image in their colours."""
    rng = np.random.default_rng(seed)
    height, width = size
    values = rng.integers(0, classes, (2, 4)).repeat(height // 2, 0).repeat(width // 4, 1)
    values[height // 2] = 255
    pixels = np.clip(_COLOURS[values] + rng.normal(0, 8, (*size, 3)), 0, 255)
    for file in (image, labels):
        file.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(image), pixels.astype(np.uint8))
    picture = Image.fromarray(values.astype(np.uint8))
    if 'SegmentationClass' in str(labels) and 'Aug' not in str(labels):
        picture.putpalette(bytes(range(256)) * 3)  # VOC's own are palette images
    picture.save(labels)


def write_cityscapes(root: Path, each: int = 2, size: tuple[int, int] = (32, 64)) -> Path:
    """``leftImg8bit`` and ``gtFine``, two cities per split."""
    for split, cities in (('train', ('aachen', 'bochum')), ('val', ('frankfurt', 'munster'))):
        for place, city in enumerate(cities):
            for k in range(each):
                stem = f'{split}/{city}/{city}_{k:06d}_000019'
                image = root / 'leftImg8bit' / f'{stem}_leftImg8bit.png'
                labels = root / 'gtFine' / f'{stem}_gtFine_labelTrainIds.png'
                _pair(image, labels, 19, 10 * place + k, size)
                labels.with_name(f'{Path(stem).name}_gtFine_polygons.json').write_text('{}')
    return root


def write_acdc(root: Path, size: tuple[int, int] = (32, 64)) -> Path:
    """One validation image per condition, two by night; a training image that nothing reads."""
    names = ['fog/val/a_0', 'night/val/b_0', 'night/val/b_1', 'rain/val/c_0', 'snow/val/d_0']
    for seed, name in enumerate([*names, 'fog/train/e_0']):
        folder, stem = name.rsplit('/', 1)
        stem = f'{folder}/GOPR0{seed}/GOPR0{seed}_frame_00000{stem[-1]}'
        labels = root / 'gt' / f'{stem}_gt_labelTrainIds.png'
        _pair(root / 'rgb_anon' / f'{stem}_rgb_anon.png', labels, 19, seed, size)
    return root


def write_dark_zurich(root: Path, size: tuple[int, int] = (32, 64)) -> Path:
    """Two validation images, by night."""
    for k in range(2):
        stem = f'val/night/GOPR0356/GOPR0356_frame_00032{k}'
        labels = root / 'gt' / f'{stem}_gt_labelTrainIds.png'
        _pair(root / 'rgb_anon' / f'{stem}_rgb_anon.png', labels, 19, k, size)
    return root


def write_voc(root: Path, size: tuple[int, int] = (48, 64)) -> Path:
    """Two images per list; the labels of ``aug`` are SBD's."""
    lists = root / 'ImageSets' / 'Segmentation'
    lists.mkdir(parents=True)
    for number, split in enumerate(('train', 'aug', 'val')):
        names = [f'2007_00{number}{k}' for k in range(2)]
        (lists / f'{split}.txt').write_text('\n'.join(names) + '\n')
        folder = 'SegmentationClassAug' if split == 'aug' else 'SegmentationClass'
        for k, name in enumerate(names):
            image, labels = root / 'JPEGImages' / f'{name}.jpg', root / folder / f'{name}.png'
            _pair(image, labels, 21, 10 * number + k, size)
    return root


def write_coco_stuff(root: Path, size: tuple[int, int] = (48, 64)) -> Path:
    """Two images per split, with the converted labels and those of the release beside them."""
    for number, split in enumerate(('train2017', 'val2017')):
        for k in range(2):
            stem = f'{split}/00000000{number}{k}'
            labels = root / 'annotations' / f'{stem}_labelTrainIds.png'
            _pair(root / 'images' / f'{stem}.jpg', labels, 171, 10 * number + k, size)
            (root / 'annotations' / f'{stem}.png').write_bytes(labels.read_bytes())
    return root


WRITE = {
    'cityscapes': write_cityscapes,
    'acdc': write_acdc,
    'dark-zurich': write_dark_zurich,
    'voc': write_voc,
    'coco-stuff': write_coco_stuff,
}
