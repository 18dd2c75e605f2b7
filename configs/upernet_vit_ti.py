"""UperNet with ViT-Ti, on ADE20K.

    python tools/train.py configs/upernet_vit_ti.py --init WEIGHTS

mIoU, the paper's (Table 6): 38.9 with 160K iterations, 35.5 with ``--schedule 40k``.
Measured by us: not yet.

No drop path, as XCiT for its model of about this size (T12).
"""

_base_ = ['_base_/upernet_ade20k.py']

width = 192
model = dict(
    backbone=dict(arch='tiny'),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
