"""As imagenet_300e.py, but 150 epochs."""

_base_ = ['imagenet_300e.py']

schedule = '150e'
train_cfg = dict(max_epochs=150)
param_scheduler = [
    dict(
        type='LinearLR',
        start_factor=1e-3,
        by_epoch=True,
        begin=0,
        end=5,
        convert_to_iter_based=True,
    ),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        by_epoch=True,
        begin=5,
        end=150,
        T_max=145,
        convert_to_iter_based=True,
    ),
]
