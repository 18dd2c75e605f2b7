"""As imagenet_300e.py, but 150 epochs."""

_base_ = ['imagenet_300e.py']

schedule = '150e'
train_cfg = dict(max_epochs=150)
param_scheduler = [
    dict(**_base_.warmup, begin=0, end=5),
    dict(**_base_.cosine, begin=5, end=150),
]
