"""ViT-S + CB_S in all layers, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_s_cb_s.py --data-root /data/imagenet

The paper's (Table S12): top-1 81.6, top-5 95.6, ImageNet-V2 70.9, ImageNet-ReaL 87.3.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_s_cb_s.py.
"""

_base_ = ['../imagenet/imagenet_vit_s_cb_s.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_small_distilled_patch16_224'))
