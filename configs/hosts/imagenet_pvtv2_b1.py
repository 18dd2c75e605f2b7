"""PVTv2-B1, on ImageNet-1K, 120 epochs.

    python tools/train.py configs/hosts/imagenet_pvtv2_b1.py --data-root /data/imagenet

The paper's (Table S14): top-1 76.4.
Measured by us: not yet.

It classifies from the mean of its last map.
The recipe is DeiT's, our reading except for the epochs; drop path 0.1 is the host's own.
"""

_base_ = [
    '../_base_/models/classifier_timm.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_120e.py',
]

model = dict(backbone=dict(model_name='pvt_v2_b1'), head=dict(in_channels=512))
