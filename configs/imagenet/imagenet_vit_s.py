"""ViT-S, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_s.py --data-root /data/imagenet

The paper's (Table 5): top-1 79.9, top-5 95.0, ImageNet-V2 68.1, ImageNet-ReaL 85.7.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_300e.py',
]

model = dict(backbone=dict(arch='small'), head=dict(in_channels=384))
