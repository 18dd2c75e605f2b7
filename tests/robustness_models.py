"""Very small models of both tasks, on the embedded scenes, for the tests of testing."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config

from cb_mm.robustness.quiet import quiet
from cb_mm.runner import RunOptions, prepare_config

#: With these thresholds even random weights find something, so that AP is not 0 = 0.
FAST_MASK_RCNN = (
    SMALL_MASK_RCNN
    + """
model = dict(
    test_cfg=dict(
        rpn=dict(nms_pre=100, max_per_img=50),
        rcnn=dict(score_thr=0.0, max_per_img=20),
    ),
    train_cfg=dict(rpn_proposal=dict(nms_pre=100, max_per_img=50), rcnn=dict(sampler=dict(num=32))),
    backbone=model['backbone'],
    neck=model['neck'],
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
test_evaluator = dict(iou_thrs=[0.05, 0.1, 0.2, 0.5, 0.75])
"""
)

TEXTS = {'seg': SMALL_UPERNET, 'det': FAST_MASK_RCNN}
LAYOUTS = {'seg': 'ade20k', 'det': 'coco'}
SCOPES = {'seg': 'mmseg', 'det': 'mmdet'}


class SmallModel:
    """A config, its random weights as a checkpoint, and where its data lie."""

    def __init__(self, folder: Path, task: str, data: Path, seed: int = 0) -> None:
        self.task = task
        self.folder = folder
        self.data = data
        self.config = write_config(folder, TEXTS[task], f'{task}.py')
        self.checkpoint = folder / f'{task}_{seed}.pth'
        with quiet():
            config = self.prepared()
            init_default_scope(SCOPES[task])
            torch.manual_seed(seed)
            model = MODELS.build(config.model)
            for layer in model.modules():
                # Without this, random weights predict one class for every pixel.
                if isinstance(layer, torch.nn.Conv2d) and layer.kernel_size == (1, 1):
                    torch.nn.init.normal_(layer.weight, std=0.3)
            torch.save({'state_dict': model.state_dict(), 'meta': {}}, self.checkpoint)

    def prepared(self, *options: str):
        """The whole config, on the scenes, without workers."""
        words = ['test_dataloader.num_workers=0', 'test_dataloader.persistent_workers=False']
        return prepare_config(
            RunOptions(
                str(self.config), data_root=str(self.data), cfg_options=[*words, *options],
                work_dir=str(self.folder / 'work'),
            )
        )  # fmt: skip

    def words(self, *more: object, checkpoint: Path | None = None) -> list[str]:
        """The command line of tools/test.py."""
        start = [self.config, checkpoint or self.checkpoint, '--data-root', self.data]
        return [str(word) for word in (*start, *more)]


def records(out: Path) -> dict[str, dict]:
    """Finished passes by key, as they are on disk."""
    lines = (out / 'results.jsonl').read_text().splitlines()[1:]
    return {record['key']: record for record in map(json.loads, lines)}


def scores(out: Path) -> dict[str, dict]:
    """All that must be equal between two runs of one test."""
    return {
        key: {
            name: record[name] for name in ('metrics', 'upstream', 'per_class', 'images', 'level')
        }
        | {'images': (out / record['per_image']).read_text()}
        for key, record in records(out).items()
    }
