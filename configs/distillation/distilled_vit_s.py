"""ViT-S, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_s.py --data-root /data/imagenet

The paper's (Table S12): top-1 81.2, top-5 95.4, ImageNet-V2 69.8, ImageNet-ReaL 86.9.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_s.py.
"""

_base_ = ['../imagenet/imagenet_vit_s.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_small_distilled_patch16_224'))
