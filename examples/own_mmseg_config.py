"""Use the backbone in your own mmsegmentation config, trained by mmengine's own Runner.

    python examples/own_mmseg_config.py

Only the config knows about cb_mm: ``custom_imports`` registers ``ViTCB``, and mmseg builds, trains,
validates and predicts as usual, here on the embedded scenes. Everything goes to
example_out/own_mmseg_config, including the config.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

import cb_mm  # noqa: F401  (before mmseg.apis, which imports mmcv's ops at once)
from cb_mm.datasets import SCENE_CLASSES, write_scenes

CONFIG = """
default_scope = 'mmseg'
custom_imports = dict(imports=['cb_mm'], allow_failed_imports=False)
classes = CLASSES  # some of ADE20K's classes; without metainfo, all 150
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        seg_pad_val=255,
        size=(96, 96),
    ),
    backbone=dict(
        type='ViTCB',
        arch=dict(embed_dim=96, depth=6, num_heads=3),  # or 'tiny', 'small', 'base', a timm name
        broadcast='cb',  # or None, 'cb_s', ...
        layers='upper',
        out_indices=(1, 2, 3, 5),
        # init_cfg=dict(type='Pretrained', checkpoint='deit_tiny.pth'),
    ),
    decode_head=dict(
        type='UPerHead',
        in_channels=[96, 96, 96, 96],
        in_index=[0, 1, 2, 3],
        channels=32,
        num_classes=len(classes),
        align_corners=False,
        norm_cfg=dict(type='BN'),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
    ),
    test_cfg=dict(mode='whole'),
)
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations', reduce_zero_label=True)]
pack = dict(type='PackSegInputs')
train_pipeline = [*load, dict(type='RandomCrop', crop_size=(96, 96)), pack]
test_pipeline = [*load, pack]
data = dict(type='ADE20KDataset', data_root='DATA', metainfo=dict(classes=classes))
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
        **data,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
        **data,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05)
)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=ITERATIONS)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=ITERATIONS),
    logger=dict(type='LoggerHook', interval=20),
)
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
"""


def main(argv: list[str] | None = None) -> int:
    """Write the config, train, predict one image."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--out', type=Path, default=Path('example_out/own_mmseg_config'))
    parser.add_argument('--iterations', type=int, default=200)
    args = parser.parse_args(argv)

    data = write_scenes(args.out / 'scenes', train=24, val=4).ade20k
    text = CONFIG.replace('CLASSES', str(SCENE_CLASSES)).replace('DATA', str(data))
    file = args.out / 'config.py'
    file.write_text(text.replace('ITERATIONS', str(args.iterations)))

    config = Config.fromfile(file)
    config.work_dir = str(args.out / 'train')
    Runner.from_cfg(config).train()

    from mmseg.apis import inference_model, init_model

    model = init_model(config, str(args.out / 'train' / f'iter_{args.iterations}.pth'), 'cpu')
    image = data / 'images' / 'validation' / 'ADE_val_00000001.jpg'
    labels = inference_model(model, str(image)).pred_sem_seg.data[0]
    names = ', '.join(SCENE_CLASSES[i] for i in labels.unique())
    print(f'{image.name}, {labels.shape[0]} x {labels.shape[1]} pixels: {names}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
