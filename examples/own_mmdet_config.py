"""Use the backbone in your own mmdetection config, trained by mmengine's own Runner.

    python examples/own_mmdet_config.py

mmdet's Mask R-CNN config is the base. Only the backbone, the widths around it and the data change:
the embedded scenes with six COCO classes. Trains one short epoch, then predicts. Everything goes to
example_out/own_mmdet_config, including the config.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

import cb_mm  # noqa: F401  (before mmdet.apis, which imports mmcv's ops at once)
from cb_mm.datasets import SCENE_THING_CLASSES, write_scenes

CONFIG = """
_base_ = ['mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py']
custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
classes = CLASSES
model = dict(
    backbone=dict(
        _delete_=True,
        type='ViTCB',
        arch=dict(embed_dim=96, depth=6, num_heads=3),  # or 'tiny', 'small', 'base', a timm name
        broadcast='cb',
        skip_out_layers=True,  # as the paper does for detection
        out_indices=(1, 2, 3, 5),
        # init_cfg=dict(type='Pretrained', checkpoint='deit_tiny.pth'),
    ),
    neck=dict(in_channels=[96, 96, 96, 96]),
    roi_head=dict(
        bbox_head=dict(num_classes=len(classes)), mask_head=dict(num_classes=len(classes))
    ),
    # Fewer boxes than in real training, for a CPU.
    train_cfg=dict(rpn_proposal=dict(max_per_img=200), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(max_per_img=100), rcnn=dict(max_per_img=20)),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(256, 192), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
data = dict(data_root='DATA/', metainfo=dict(classes=classes))
train_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        pipeline=train_pipeline,
        indices=PICTURES,
        filter_cfg=dict(filter_empty_gt=True, min_size=8),
        **data,
    ),
)
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **data),
)
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='DATA/annotations/instances_val2017.json')
test_evaluator = val_evaluator
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05),
)
train_cfg = dict(max_epochs=1)
default_hooks = dict(logger=dict(interval=5))
randomness = dict(seed=0)
"""


def main(argv: list[str] | None = None) -> int:
    """Write the config, train, predict one image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, default=Path('example_out/own_mmdet_config'))
    parser.add_argument('--pictures', type=int, default=24, help='training images')
    args = parser.parse_args(argv)

    data = write_scenes(args.out / 'scenes', train=24, val=4).coco
    text = CONFIG.replace('CLASSES', str(SCENE_THING_CLASSES)).replace('DATA', str(data))
    file = args.out / 'config.py'
    file.write_text(text.replace('PICTURES', str(args.pictures)))

    config = Config.fromfile(file)
    config.work_dir = str(args.out / 'train')
    Runner.from_cfg(config).train()

    from mmdet.apis import inference_detector, init_detector

    model = init_detector(config, str(args.out / 'train' / 'epoch_1.pth'), device='cpu')
    image = sorted((data / 'val2017').glob('*.jpg'))[0]
    found = inference_detector(model, str(image)).pred_instances
    best = f'best score {found.scores.max():.2f}' if len(found) else 'no score above the threshold'
    print(f'{image.name}: {len(found)} boxes with masks, {best}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
