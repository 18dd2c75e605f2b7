"""Imagenette: ten classes of ImageNet in folders, squeezed to squares of 184 pixels."""

default_scope = 'mmpretrain'
dataset_type = 'ClassFolders'
data_root = 'data/imagenette'
image_size = 184

load = dict(type='LoadImageFromFile')
resize = dict(type='Resize', scale=(image_size, image_size))
random_crop = dict(type='RandomResizedCrop', scale=image_size)
random_flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
corruption_point = dict(type='CorruptionPoint', channel_order='bgr')
pack = dict(type='PackInputs')

train_pipeline = [load, resize, random_crop, random_flip, pack]
test_pipeline = [load, resize, corruption_point, pack]
train_dataloader = dict(
    batch_size=16,  # × 4 GPUs = 64
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='ReplaySampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='train',
        labels='sorted',  # 0 to 9, not ImageNet's numbers
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=64,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix='val',
        labels='sorted',
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
test_evaluator = dict(type='Accuracy', topk=(1,))
val_evaluator = [test_evaluator, dict(type='ValidationLoss')]
visualizer = dict(
    type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
