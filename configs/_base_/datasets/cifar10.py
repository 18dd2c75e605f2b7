"""CIFAR-10 at its own 32², with the usual light augmentation: crops of the padded image, flips."""

default_scope = 'mmpretrain'
dataset_type = 'CIFAR10Images'
data_root = 'data/cifar10'

train_pipeline = [
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='CorruptionPoint', channel_order='bgr'), dict(type='PackInputs')]
# No workers: the images are in memory, and to crop and flip one takes no time.
train_dataloader = dict(
    batch_size=128,
    num_workers=0,
    drop_last=True,
    sampler=dict(type='ReplaySampler', shuffle=True),
    dataset=dict(type=dataset_type, data_root=data_root, split='train', pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, data_root=data_root, split='test', pipeline=test_pipeline),
)
test_dataloader = val_dataloader
test_evaluator = dict(type='Accuracy', topk=(1, 5))
val_evaluator = [test_evaluator, dict(type='ValidationLoss')]
visualizer = dict(
    type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
