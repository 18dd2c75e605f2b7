"""ViT-Ti + CB_S in all layers, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_ti_cb_s.py --data-root /data/imagenet

The paper's (Table S12): top-1 75.3, top-5 92.5, ImageNet-V2 63.4, ImageNet-ReaL 82.8.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_ti_cb_s.py.
"""

_base_ = ['../imagenet/imagenet_vit_ti_cb_s.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_tiny_distilled_patch16_224'))
