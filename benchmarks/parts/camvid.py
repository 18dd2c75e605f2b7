"""CamVid as the data of a config: 11 classes of the street, label 11 is not labelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cb_mm.errors import UserError

IGNORE = 11
CLASSES = (
    *('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car'),
    *('pedestrian', 'bicyclist'),
)


def require_camvid(folder: Path) -> None:
    """Say what is missing, before anything runs."""
    for part in ('images/train', 'images/val', 'annotations/train', 'annotations/val'):
        if not (folder / part).is_dir():
            raise UserError(
                f'CamVid is not at {folder}: there is no {part}. Give its folder by --camvid.'
            )


def camvid_data(
    crop: int, scale: tuple[int, int], batch: int, resize_test: bool = False
) -> dict[str, Any]:
    """Loaders and metrics. Images are tested in their own size, or resized to the scale."""
    load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
    train = [
        *load,
        dict(type='RandomResize', scale=scale, ratio_range=(0.75, 1.5), keep_ratio=True),
        dict(type='RandomCrop', crop_size=(crop, crop), ignore_index=IGNORE),
        dict(type='RandomFlip', prob=0.5),
        dict(type='PhotoMetricDistortion'),
        dict(type='PackSegInputs'),
    ]
    resize = [dict(type='Resize', scale=scale, keep_ratio=True)] if resize_test else []
    test = [load[0], *resize, load[1], dict(type='PackSegInputs')]
    tested = dict(
        batch_size=1,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False),
        dataset=_dataset('val', test),
    )
    metric = dict(type='IoUMetric', iou_metrics=['mIoU'], ignore_index=IGNORE)
    return dict(
        default_scope='mmseg',
        train_dataloader=dict(
            batch_size=batch,
            num_workers=0,
            sampler=dict(type='ReplayInfiniteSampler', shuffle=True),
            dataset=_dataset('train', train),
        ),
        val_dataloader=tested,
        test_dataloader=tested,
        val_evaluator=metric,
        test_evaluator=metric,
    )


def _dataset(split: str, pipeline: list[dict[str, Any]]) -> dict[str, Any]:
    return dict(
        type='BaseSegDataset',
        data_root='camvid',
        data_prefix=dict(img_path=f'images/{split}', seg_map_path=f'annotations/{split}'),
        img_suffix='.jpg',
        seg_map_suffix='.png',
        metainfo=dict(classes=CLASSES),
        pipeline=pipeline,
    )
