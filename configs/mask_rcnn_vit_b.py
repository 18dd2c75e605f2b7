"""Mask R-CNN + FPN with ViT-B, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_b.py --init WEIGHTS

The paper gives no score for this size.
Measured by us: not yet.

Drop path 0.15 in every block is XCiT's for its model of about this size (M24).
"""

_base_ = ['_base_/mask_rcnn_coco.py']

width = 768
model = dict(
    backbone=dict(arch='base', drop_path_rate=0.15, drop_path_mode='constant'),
    neck=dict(in_channels=[width, width, width, width]),
)
