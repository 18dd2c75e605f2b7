"""ViT-Ti, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_ti.py --data-root /data/imagenet

The paper's (Table 5): top-1 72.2, top-5 91.1, ImageNet-V2 59.9, ImageNet-ReaL 80.1.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_300e.py',
]

model = dict(backbone=dict(arch='tiny'), head=dict(in_channels=192))
