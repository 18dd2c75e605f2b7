"""ViT-B, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_b.py --data-root /data/imagenet

The paper's (Table S12): top-1 83.4, top-5 96.4, ImageNet-V2 72.2, ImageNet-ReaL 88.1.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_b.py.
"""

_base_ = ['../imagenet/imagenet_vit_b.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_base_distilled_patch16_224'))
