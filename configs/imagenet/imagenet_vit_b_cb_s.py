"""ViT-B + CB_S in all layers, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_b_cb_s.py --data-root /data/imagenet

The paper's (Table 5): top-1 82.1, top-5 95.8, ImageNet-V2 71.1, ImageNet-ReaL 86.9.
Measured by us: not yet.

As in the paper, 10 epochs of warm-up and more drop path. It does not say how much: 0.2 is our
reading, the value that it gives for distillation.

CB_S in all layers is our reading: the paper's 0.02 % more parameters for ViT-S are 12 × 384.
"""

_base_ = ['imagenet_vit_b_cb.py']

model = dict(backbone=dict(broadcast='cb_s', layers='all'))
