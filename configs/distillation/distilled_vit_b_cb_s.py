"""ViT-B + CB_S in all layers, distilled on ImageNet-1K from RegNetY-16GF.

    python tools/train.py configs/distillation/distilled_vit_b_cb_s.py --data-root /data/imagenet

The paper's (Table S12): top-1 83.6, top-5 96.5, ImageNet-V2 73.4, ImageNet-ReaL 88.3.
Measured by us: not yet.

DeiT's hard distillation; the recipe is otherwise that of imagenet_vit_b_cb_s.py.

Drop path 0.2, as the paper says for ViT-B with CB.
"""

_base_ = ['../imagenet/imagenet_vit_b_cb_s.py', '../_base_/models/distilled.py']

model = dict(**_base_.distilled, backbone=dict(arch='deit_base_distilled_patch16_224'))
