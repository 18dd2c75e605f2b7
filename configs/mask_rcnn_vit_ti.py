"""Mask R-CNN + FPN with ViT-Ti, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_ti.py --init WEIGHTS

AP, the paper's (Table 7): box 34.8, mask 32.5.
Measured by us: not yet.

No drop path, as XCiT for its model of about this size (T12).
"""

_base_ = ['_base_/mask_rcnn_coco.py']

width = 192
model = dict(backbone=dict(arch='tiny'), neck=dict(in_channels=[width, width, width, width]))
