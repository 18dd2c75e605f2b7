"""As imagenet_300e.py, but 120 epochs."""

_base_ = ['imagenet_300e.py']

schedule = '120e'
train_cfg = dict(max_epochs=120)
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
        end=120,
        T_max=115,
        convert_to_iter_based=True,
    ),
]
