"""Swin-Ti, on ImageNet-1K, 120 epochs.

    python tools/train.py configs/hosts/imagenet_swin_t.py --data-root /data/imagenet

The paper's (Table S14): top-1 79.3.
Measured by us: not yet.

It classifies from the mean of its last map.
The recipe is DeiT's, our reading except for the epochs; drop path 0.2 is the host's own.
"""

_base_ = [
    '../_base_/models/classifier_timm.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_120e.py',
]

model = dict(
    backbone=dict(model_name='swin_tiny_patch4_window7_224', drop_path_rate=0.2),
    head=dict(in_channels=768),
)
