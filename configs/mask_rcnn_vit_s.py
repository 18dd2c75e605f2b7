"""Mask R-CNN + FPN with ViT-S, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_s.py --init WEIGHTS

The paper gives no score for this size.
Measured by us: not yet.
"""

_base_ = ['_base_/mask_rcnn_coco.py']

width = 384
model = dict(backbone=dict(arch='small'), neck=dict(in_channels=[width, width, width, width]))
