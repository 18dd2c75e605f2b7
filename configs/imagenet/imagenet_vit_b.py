"""ViT-B, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_b.py --data-root /data/imagenet

The paper's (Table 5): top-1 81.8, top-5 95.6, ImageNet-V2 70.5, ImageNet-ReaL 86.7.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_300e.py',
]

model = dict(backbone=dict(arch='base'), head=dict(in_channels=768))
