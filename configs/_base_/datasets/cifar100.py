"""CIFAR-100, enlarged to 224², with DeiT's augmentation."""

default_scope = 'mmpretrain'
dataset_type = 'CIFAR100Images'
data_root = 'data/cifar100'
image_size = 224
rgb_mean = [129.304, 124.070, 112.434]
rgb_std = [68.170, 65.392, 70.418]

train_pipeline = [
    dict(type='RandomResizedCrop', scale=image_size, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[129, 124, 112], interpolation='bicubic'),
    ),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=0.3333333333333333,
        fill_color=rgb_mean,
        fill_std=rgb_std,
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    # Before the enlarging: a corruption is one of the image that there is.
    dict(type='CorruptionPoint', channel_order='rgb'),
    dict(type='Resize', scale=(image_size, image_size), backend='pillow', interpolation='bicubic'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=128,  # × 8 GPUs = 1024
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='ReplaySampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
visualizer = dict(
    type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
