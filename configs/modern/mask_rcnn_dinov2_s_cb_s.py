"""Mask R-CNN + FPN with DINOv2-S + CB_S in the layers that do not feed the FPN, on COCO, 1×.

    python tools/train.py configs/modern/mask_rcnn_dinov2_s_cb_s.py --init WEIGHTS

WEIGHTS: vit_small_patch14_reg4_dinov2.lvd142m (timm), or a file.
DINOv2 ViT-S/14 with four registers.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/mask_rcnn_coco.py']

width = 384
strides = [3.5, 7, 14, 28]  # a quarter of a patch to two patches
model = dict(
    data_preprocessor=dict(pad_size_divisor=28),  # whole cells in every level
    backbone=dict(arch='vit_small_patch14_reg4_dinov2', broadcast='cb_s', layers='all'),
    neck=dict(in_channels=[width, width, width, width]),
    rpn_head=dict(anchor_generator=dict(strides=[3.5, 7, 14, 28, 56])),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
    ),
)
