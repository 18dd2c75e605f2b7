"""Mask R-CNN + FPN with ViT-B + CB in the upper layers that do not feed the FPN, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_b_cb.py --init WEIGHTS

The paper gives no score for this size.
Measured by us: not yet.
"""

_base_ = ['mask_rcnn_vit_b.py']

model = dict(backbone=dict(broadcast='cb'))
