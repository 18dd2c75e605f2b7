"""Mask R-CNN + FPN with EVA02-S + CB_S in the layers that do not feed the FPN, on COCO, 1×.

    python tools/train.py configs/modern/mask_rcnn_eva02_s_cb_s.py --init WEIGHTS

WEIGHTS: eva02_small_patch14_224.mim_in22k (timm), or a file.
EVA-02 ViT-S/14: rotary positions, SwiGLU.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/mask_rcnn_coco.py']

width = 384
strides = [3.5, 7, 14, 28]  # a quarter of a patch to two patches
model = dict(
    data_preprocessor=dict(
        mean=[122.7709383, 116.7460125, 104.09373615],
        std=[68.5005327, 66.6321579, 70.32316305],
        pad_size_divisor=28,  # whole cells in every level
    ),
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='eva02_small_patch14_224',
        broadcast='cb_s',
        layers='all',
        out_indices=(3, 5, 7, 11),
        skip_out_layers=True,
        pyramid_norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
    neck=dict(in_channels=[width, width, width, width]),
    rpn_head=dict(anchor_generator=dict(strides=[3.5, 7, 14, 28, 56])),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
    ),
)
