"""CIFAR-100, enlarged to 224², with DeiT's augmentation."""

_base_ = ['deit_augmentation.py']

dataset_type = 'CIFAR100Images'
data_root = 'data/cifar100'
image_size = 224
bgr_mean = [112.434, 124.070, 129.304]
bgr_std = [70.418, 65.392, 68.170]

train_pipeline = [
    _base_.random_crop,
    _base_.random_flip,
    dict(**_base_.rand_augment, hparams=dict(pad_val=[112, 124, 129], interpolation='bicubic')),
    dict(**_base_.random_erasing, fill_color=bgr_mean, fill_std=bgr_std),
    dict(type='PackInputs'),
]
test_pipeline = [
    # Before enlarging: the original image is what gets corrupted.
    dict(type='CorruptionPoint', channel_order='bgr'),
    dict(type='Resize', scale=(image_size, image_size), backend='pillow', interpolation='bicubic'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    **_base_.train_loader,
    num_workers=4,
    sampler=dict(type='ReplaySampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    **_base_.test_loader,
    num_workers=4,
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
