"""Mixer-S/16, on ImageNet-1K, 300 epochs.

    python tools/train.py configs/hosts/imagenet_mixer_s16.py --data-root /data/imagenet

The paper's (Table 11): top-1 74.3.
Measured by us: not yet.

It classifies from the mean of its tokens. The recipe is DeiT's, as the paper says; its drop path of
0.1 is in it.
"""

_base_ = [
    '../_base_/models/classifier_timm.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_300e.py',
]

model = dict(backbone=dict(model_name='mixer_s16_224'), head=dict(in_channels=512))
