"""AdamW for 8 epochs: one of warm-up, then one cosine. Short enough for a CPU."""

_base_ = ['imagenet_300e.py']

schedule = '8e'
train_cfg = dict(max_epochs=8, val_interval=2)
param_scheduler = [
    dict(**_base_.warmup, begin=0, end=1),
    dict(**_base_.cosine, begin=1, end=8),
]
auto_scale_lr = dict(base_batch_size=128)
