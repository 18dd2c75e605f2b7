"""Fine-tuning on CamVid: 11 classes of the street, label 11 is not labelled."""

_base_ = ['segmentor.py']

ignore = 11
camvid = dict(
    type='BaseSegDataset',
    data_root='camvid',
    img_suffix='.jpg',
    seg_map_suffix='.png',
    metainfo=dict(
        classes=(
            *('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car'),
            *('pedestrian', 'bicyclist'),
        )
    ),
)
model = dict(
    data_preprocessor=dict(seg_pad_val=ignore),
    decode_head=dict(num_classes=11, ignore_index=ignore),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale={{_base_.scale}}, ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size={{_base_.crop_size}}, ignore_index=ignore),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale={{_base_.scale}}, keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type='ReplayInfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),
        pipeline=train_pipeline,
        **camvid,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'),
        pipeline=test_pipeline,
        **camvid,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(ignore_index=ignore)
test_evaluator = val_evaluator
optim_wrapper = dict(optimizer=dict(lr=3e-4))
