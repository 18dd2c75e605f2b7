"""Mask R-CNN + FPN with ViT-Ti, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_ti.py --init WEIGHTS

The paper's (Table 7): box AP 34.8, AP50 57.4, AP75 36.5; mask AP 32.5, AP50 54.3, AP75 33.7.
Measured by us: not yet.

No drop path, as XCiT for its model of about this size (T12).
"""

_base_ = ['_base_/mask_rcnn_coco.py']

width = 192
model = dict(backbone=dict(arch='tiny'), neck=dict(in_channels=[width, width, width, width]))
