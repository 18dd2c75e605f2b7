"""ViT-S + CB_S in all layers, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_s_cb_s.py --data-root /data/imagenet

The paper's (Table 5): top-1 80.4, top-5 95.1, ImageNet-V2 68.7, ImageNet-ReaL 85.9.
Measured by us: not yet.

As in the paper, without repeated augmentation.

CB_S in all layers is our reading: the paper's 0.02 % more parameters for ViT-S are 12 × 384.
"""

_base_ = ['imagenet_vit_s_cb.py']

model = dict(backbone=dict(broadcast='cb_s', layers='all'))
