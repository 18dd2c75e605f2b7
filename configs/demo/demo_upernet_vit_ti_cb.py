"""Scaled-down UperNet recipe on the embedded scenes, for a CPU.

    python tools/make_scenes.py demo_out/scenes
    python tools/train.py configs/demo/demo_upernet_vit_ti_cb.py

Takes about three minutes on two cores, from random weights. It shows that everything works together
and measures nothing else.
"""

_base_ = ['../upernet_vit_ti_cb.py']

data_root = 'demo_out/scenes/ade20k'
crop_size = (160, 160)
scenes = dict(
    data_root=data_root,
    metainfo=dict(
        classes=(
            *('building', 'sky', 'tree', 'road', 'grass', 'sidewalk', 'person', 'mountain'),
            *('car', 'water', 'fence', 'signboard', 'boat', 'bus', 'streetlight', 'animal'),
        )
    ),
)

model = dict(
    data_preprocessor=dict(size=crop_size),
    decode_head=dict(channels=64, num_classes=16),
    auxiliary_head=dict(channels=32, num_classes=16),
)
train_pipeline = [
    *_base_.train_pipeline[:2],  # image, labels
    dict(type='RandomResize', scale=(256, 192), ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    _base_.train_pipeline[4],  # flip
    _base_.train_pipeline[-1],
]
test_pipeline = [
    _base_.test_pipeline[0],
    dict(type='Resize', scale=(256, 192), keep_ratio=True),
    *_base_.test_pipeline[2:],
]
train_dataloader = dict(
    batch_size=8, num_workers=1, dataset=dict(pipeline=train_pipeline, **scenes)
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **scenes))
test_dataloader = val_dataloader

schedule = 'demo'
schedules = dict(_delete_=True)
iterations = 400
optim_wrapper = dict(optimizer=dict(lr=5e-4), clip_grad=dict(max_norm=1.0))
train_cfg = dict(max_iters=iterations, val_interval=iterations)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=40),
    dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=40, end=iterations),
]
default_hooks = dict(logger=dict(interval=20), checkpoint=dict(interval=200, save_best=None))
auto_scale_lr = dict(base_batch_size=8)
