"""A folder of images and masks with the mistakes that people make, and what the check says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from cb_mm.config.loading import load_config
from cb_mm.datasets.checks.configured import check_config
from cb_mm.errors import UserError

CONFIG = """
default_scope = 'mmseg'
custom_imports = dict(imports=['cb_mm'])
model = dict(decode_head=dict(num_classes=3), auxiliary_head=[dict(num_classes=3)])
train_dataloader = dict(dataset=dict(
    type='BaseSegDataset', metainfo=dict(classes=('a', 'b', 'c')), data_root='mine',
    img_suffix='.jpg', seg_map_suffix='.png',
    data_prefix=dict(img_path='images/train', seg_map_path='masks/train'),
    pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]))
"""
MASK = np.repeat(np.arange(3, dtype=np.uint8), 16).reshape(6, 8)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Two images, their masks and a config."""
    monkeypatch.chdir(tmp_path)
    for kind, name, pixels in (('images', 'jpg', np.full((6, 8, 3), 90, np.uint8)),
                               ('masks', 'png', MASK)):  # fmt: skip
        for number in (1, 2):
            file = Path(f'mine/{kind}/train/{number}.{name}')
            file.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(file), pixels)
    Path('own.py').write_text(CONFIG)
    return Path('own.py')


def masks() -> list[Path]:
    return sorted(Path('mine/masks/train').iterdir())


def write(pixels: np.ndarray, suffix: str = '.png') -> None:
    """Replace every mask."""
    for file in masks():
        file.unlink()
        cv2.imwrite(str(file.with_suffix(suffix)), pixels)


def config(old: str, new: str) -> None:
    text = Path('own.py').read_text()
    assert old in text
    Path('own.py').write_text(text.replace(old, new))


def colours() -> None:
    write(np.array([[0, 0, 0], [0, 0, 128], [0, 128, 0]], np.uint8)[MASK])


def jpeg() -> None:
    write(MASK, '.jpg')
    config("seg_map_suffix='.png'", "seg_map_suffix='.jpg'")


def other_names() -> None:
    for file in masks():
        file.rename(file.with_name(f'{file.stem}_mask.png'))


def other_suffix() -> None:
    Path('mine/images/train/2.jpg').rename('mine/images/train/2.JPEG')


#: name -> what is done to the folder, the kinds that are found, and words of the messages
MISTAKES = {
    'none': (lambda: None, set(), ''),
    'colours': (colours, {'label-colour'}, 'has 3 channels and must have one'),
    'three equal channels': (
        lambda: write(np.stack([MASK] * 3, -1)), {'label-colour'}, 'are the same, so keep one'),
    'sixteen bits': (lambda: write(MASK.astype(np.uint16)), set(), ''),
    'sixteen bits, large': (
        lambda: write(MASK.astype(np.uint16) * 300), {'label-range'},
        'has the value 600, and label maps are read with 8 bits, where that is 88'),
    'JPEG': (jpeg, {'label-lossy'}, 'it is a JPEG file'),
    '0 and 255': (
        lambda: write(np.where(MASK == 1, 255, 0).astype(np.uint8)),
        {'label-255', 'class-absent'}, 'has only the labels 0 and 255 (33.3 % of the pixels)'),
    'one class too many': (
        lambda: write(MASK + (MASK == 2)), {'label-unknown', 'class-absent'},
        'If a class is not listed yet, add it to the classes; if 3 means "no class", set'),
    'many labels': (
        lambda: write(MASK * 50 + np.arange(8, dtype=np.uint8)),
        {'label-unknown'}, 'labels 3, 4, 5 and 18 more in 2 of 2 train files'),
    'mask missing': (
        lambda: os.remove(masks()[0]), {'label-missing'},
        'its image is mine/images/train/1.jpg; there is no label map of this name'),
    'other names': (
        other_names, {'label-missing'}, "but 1_mask.png: set seg_map_suffix='_mask.png'"),
    'no such folder': (
        lambda: config('masks/train', 'mask/train'), {'label-missing'},
        'the folder mine/mask/train does not exist (data_prefix.seg_map_path). Did you mean "mas'),
    'image missing': (
        lambda: os.remove('mine/images/train/1.jpg'), {'label-alone'}, 'there is no image 1.jpg'),
    'images of two suffixes': (
        other_suffix, {'suffix', 'label-alone'}, 'only files that end in .jpg are read'),
    'fewer outputs': (
        lambda: config('[dict(num_classes=3)]', '[dict(num_classes=2)]'), {'head-too-small'},
        'model.auxiliary_head.0.num_classes is 2, and the data set has 3 classes'),
    'more outputs': (
        lambda: config('decode_head=dict(num_classes=3)', 'decode_head=dict(num_classes=7)'),
        {'head-too-large'}, 'model.decode_head.num_classes is 7'),
}  # fmt: skip


@pytest.mark.parametrize('name', MISTAKES)
def test_a_mistake_is_named(own, name):
    make, kinds, words = MISTAKES[name]
    make()
    report = check_config(load_config(own))
    assert {one.kind for one in report.problems} == kinds, report.text()
    assert words in report.text()


def test_images_with_another_suffix_than_the_config(own):
    for file in list(Path('mine/images/train').iterdir()):
        file.rename(file.with_suffix('.JPG'))
    told = r'no file below mine/images/train ends in \.jpg \(img_suffix\); it has 2 \.JPG\.'
    with pytest.raises(UserError, match=told):
        check_config(load_config(own))
    shutil.rmtree('mine/images/train')
    os.mkdir('mine/images/train')
    with pytest.raises(UserError, match='it is empty'):
        check_config(load_config(own))


OBJECTS = """
default_scope = 'mmdet'
custom_imports = dict(imports=['cb_mm'])
model = dict(roi_head=dict(bbox_head=dict(num_classes=2)))
train_dataloader = dict(dataset=dict(
    type='CocoDataset', metainfo=dict(classes=('disc', 'bar')), data_root='mine',
    ann_file='train.json', data_prefix=dict(img='images/train'),
    pipeline=[dict(type='LoadImageFromFile'),
              dict(type='LoadAnnotations', with_bbox=True, with_mask=True)]))
"""


@pytest.fixture
def objects(own):
    """The same images, with two objects in each, and a config."""
    images = [dict(id=n, file_name=f'{n}.jpg', height=6, width=8) for n in (1, 2)]
    found = [
        dict(id=2 * n + c, image_id=n, category_id=c, bbox=[1, 1, 3, 3], area=9.0, iscrowd=0,
             segmentation=[[1, 1, 4, 1, 4, 4, 1, 4]])
        for n in (1, 2) for c in (1, 2)
    ]  # fmt: skip
    names = [dict(id=1, name='disc'), dict(id=2, name='bar')]
    own.write_text(OBJECTS)
    return dict(images=images, annotations=found, categories=names)


#: name -> what is done to the annotations and the config, and the kinds that are found
WRONG_OBJECTS = {
    'none': (lambda data: None, set()),
    'class of another name': (
        lambda data: config("'bar'", "'bars'"),
        {'class-missing', 'category-unused', 'class-absent'}),
    'class left out': (
        lambda data: config("('disc', 'bar')", "('disc',)"), {'category-unused', 'head-too-large'}),
    'category of no record': (
        lambda data: data['annotations'][0].update(category_id=9), {'unknown-category'}),
    'corners for sizes': (
        lambda data: data['annotations'][0].update(bbox=[1, 1, 9, 9]), {'box-overhang'}),
    'boxes alone': (
        lambda data: [config(', with_mask=True', ''),
                      *(one.pop('segmentation') for one in data['annotations'])], set()),
    'image that is not there': (
        lambda data: data['images'][0].update(file_name='x.jpg'), {'image-missing'}),
    'width and height exchanged': (
        lambda data: [one.update(height=8, width=6) for one in data['images']], {'image-size'}),
    'no outlines': (
        lambda data: [one.pop('segmentation') for one in data['annotations']], {'segmentation'}),
    'no objects': (lambda data: data['annotations'].clear(), {'no-annotations', 'image-empty'}),
}  # fmt: skip


@pytest.mark.parametrize('name', WRONG_OBJECTS)
def test_a_mistake_in_annotations_is_named(objects, own, name, capsys):
    make, kinds = WRONG_OBJECTS[name]
    make(objects)
    Path('mine/train.json').write_text(json.dumps(objects))
    report = check_config(load_config(own))
    assert {one.kind for one in report.problems} == kinds, report.text()
    assert capsys.readouterr().out == ''


def test_annotations_that_are_no_json(own):
    own.write_text(OBJECTS)
    Path('mine/train.json').write_text('{"images": [')
    (problem,) = check_config(load_config(own)).problems
    assert problem.kind == 'json'
