"""Pre-training on the labels of the procedural scenes: 16 classes, every pixel."""

_base_ = ['segmentor.py']

scenes = dict(
    type='ADE20KDataset',
    data_root='scenes/ade20k',
    metainfo=dict(
        classes=(
            *('building', 'sky', 'tree', 'road', 'grass', 'sidewalk', 'person', 'mountain'),
            *('car', 'water', 'fence', 'signboard', 'boat', 'bus', 'streetlight', 'animal'),
        )
    ),
)
model = dict(decode_head=dict(num_classes=16))
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomResize', scale={{_base_.scale}}, ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size={{_base_.crop_size}}, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale={{_base_.scale}}, keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type='ReplayInfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
        **scenes,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
        **scenes,
    ),
)
test_dataloader = val_dataloader
