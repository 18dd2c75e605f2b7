"""Mask R-CNN + FPN with ViT-S, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_s.py --init WEIGHTS

The paper gives no score for this size.
Measured by us: not yet.

Drop path 0.05 in every block is XCiT's for its model of about this size (S12).
"""

_base_ = ['_base_/mask_rcnn_coco.py']

width = 384
model = dict(
    backbone=dict(arch='small', drop_path_rate=0.05, drop_path_mode='constant'),
    neck=dict(in_channels=[width, width, width, width]),
)
