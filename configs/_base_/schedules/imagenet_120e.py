"""As imagenet_300e.py, but 120 epochs."""

_base_ = ['imagenet_300e.py']

schedule = '120e'
train_cfg = dict(max_epochs=120)
param_scheduler = [
    dict(**_base_.warmup, begin=0, end=5),
    dict(**_base_.cosine, begin=5, end=120),
]
