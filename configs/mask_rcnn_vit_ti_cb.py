"""Mask R-CNN + FPN with ViT-Ti + CB in the upper layers that do not feed the FPN, on COCO, 1×.

    python tools/train.py configs/mask_rcnn_vit_ti_cb.py --init WEIGHTS

AP, the paper's (Table 7): box 35.1, mask 32.8.
Measured by us: not yet.
"""

_base_ = ['mask_rcnn_vit_ti.py']

model = dict(backbone=dict(broadcast='cb'))
