"""The models of the table of attacks: a segmentor, a detector and a classifier, on real images.

The first two are trained here, shortly. The detector is tested on the images that it was trained
on, since a short training finds nothing elsewhere: the table measures attacks, not models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config

from cb_mm.errors import UserError
from cb_mm.fileio.atomic import write_atomically

from .camvid import find_camvid
from .options import BENCHMARKS
from .short_training import short_training
from .tool_call import call_tool

CONFIGS = BENCHMARKS.parent / 'configs'


@dataclass(frozen=True)
class Subject:
    """What is attacked.

    Attributes:
        config: Its config file.
        checkpoint: Its weights.
        data: Root of its data set.
        metric: The score of the table, as `results.json` calls it.
    """

    config: Path
    checkpoint: Path
    data: Path
    metric: str


def segmentor(work: Path, camvid: Path, weights: Path, iterations: int) -> Subject:
    """Train UperNet with ViT-Ti on CamVid, tested at 320 × 240."""
    file = work / 'config.py'
    if not file.is_file():
        config = Config.fromfile(Path(__file__).with_name('camvid_upernet.py'))
        data = find_camvid(camvid).config(crop=224, scale=(320, 240), batch=8, resize_test=True)
        recipe = short_training(iterations, 1e-4, weight_decay=0.01, new_layers=10)
        for part in (data, recipe, dict(model=dict(backbone=dict(broadcast=None)))):
            config.merge_from_dict(part)
        write_atomically(file, config.pretty_text)
    checkpoint = work / f'iter_{iterations}.pth'
    _train(file, checkpoint, camvid, '--init', weights)
    return Subject(file, checkpoint, camvid, 'mIoU')


def detector(work: Path, coco: Path, weights: Path, images: int, epochs: int) -> Subject:
    """Train Mask R-CNN with ViT-Ti on a few images of COCO, and test it on the same."""
    data = _few_images(coco, work / 'data', images)
    file = work / 'config.py'
    if not file.is_file():
        config = Config.fromfile(CONFIGS / 'mask_rcnn_vit_ti.py')
        resize = dict(type='Resize', scale=(426, 256), keep_ratio=True)
        load, annotations, flip, _, pack = config.train_dataloader.dataset.pipeline
        config.train_dataloader.dataset.pipeline = [load, annotations, resize, flip, pack]
        for loader in (config.val_dataloader, config.test_dataloader):
            loader.dataset.pipeline[1] = resize
        for loader in (config.train_dataloader, config.val_dataloader, config.test_dataloader):
            loader.update(num_workers=0, persistent_workers=False)
        warm_up, steps = config.param_scheduler
        warm_up.end = 30
        steps.update(milestones=[epochs], end=epochs)  # the rate stays what it is
        config.optim_wrapper.optimizer.lr = 3e-4
        config.train_cfg.update(max_epochs=epochs, val_interval=epochs)
        config.default_hooks.checkpoint.update(interval=max(epochs // 10, 1), save_best=None)
        write_atomically(file, config.pretty_text)
    checkpoint = work / f'epoch_{epochs}.pth'
    _train(file, checkpoint, data, '--init', weights, '--normalization', 'half')
    return Subject(file, checkpoint, data, 'bbox_mAP')


def classifier(images: Path, weights: Path) -> Subject:
    """Take DeiT-Ti as it was published."""
    if not weights.is_file():
        raise UserError(f'there is no file {weights}. See --deit.')
    return Subject(CONFIGS / 'imagenet' / 'imagenet_vit_ti.py', weights, images, 'top1')


def _train(file: Path, checkpoint: Path, data: Path, *words: Any) -> None:
    if not checkpoint.is_file():
        folder = file.parent
        call_tool(
            'train.py', file, '--data-root', data.resolve(), '--work-dir', folder, '--resume',
            '--seed', 0, *words, log=folder / 'log.txt',
        )  # fmt: skip


def _few_images(coco: Path, folder: Path, images: int) -> Path:
    """Make a data set of the first images that have objects, for training and for testing."""
    source = coco / 'annotations' / 'instances_train2017.json'
    if not source.is_file():
        raise UserError(f'there is no file {source}. See --coco.')
    content = json.loads(source.read_text())
    objects = [one for one in content['annotations'] if not one.get('iscrowd')]
    used = {one['image_id'] for one in objects}
    content['images'] = [one for one in content['images'] if one['id'] in used][:images]
    kept = {one['id'] for one in content['images']}
    content['annotations'] = [one for one in objects if one['image_id'] in kept]
    for split in ('train2017', 'val2017'):
        write_atomically(folder / 'annotations' / f'instances_{split}.json', json.dumps(content))
        if not (folder / split).exists():
            (folder / split).symlink_to((coco / 'train2017').resolve())
    return folder
