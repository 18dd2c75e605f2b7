"""Mask R-CNN + FPN with SigLIP-B + CB_S in the layers that do not feed the FPN, on COCO, 1×.

    python tools/train.py configs/modern/mask_rcnn_siglip_b_cb_s.py --init WEIGHTS

WEIGHTS: vit_base_patch16_siglip_224.v2_webli (timm), or a file.
SigLIP 2 ViT-B/16, no class token.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/mask_rcnn_coco.py']

width = 768
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
    ),
    backbone=dict(arch='vit_base_patch16_siglip_224', broadcast='cb_s', layers='all'),
    neck=dict(in_channels=[width, width, width, width]),
)
