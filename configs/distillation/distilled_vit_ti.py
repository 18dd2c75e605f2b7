"""ViT-Ti, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_ti.py --data-root /data/imagenet

The paper's (Table S12): top-1 74.5, top-5 91.9, ImageNet-V2 62.4, ImageNet-ReaL 82.1.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_ti.py.
"""

_base_ = ['../imagenet/imagenet_vit_ti.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_tiny_distilled_patch16_224'))
