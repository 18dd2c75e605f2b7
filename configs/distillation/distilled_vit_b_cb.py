"""ViT-B + CB in the upper layers, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_b_cb.py --data-root /data/imagenet

The paper's (Table S12): top-1 83.5, top-5 96.5, ImageNet-V2 72.3, ImageNet-ReaL 88.1.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_b_cb.py.

Drop path 0.2, as the paper says for ViT-B with CB.
"""

_base_ = ['../imagenet/imagenet_vit_b_cb.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_base_distilled_patch16_224'))
