"""UperNet with ViT-B + CB in the upper layers, on ADE20K.

    python tools/train.py configs/upernet_vit_b_cb.py --init WEIGHTS

mIoU, the paper's (Table 6): 45.6 with 160K iterations, 45.1 with ``--schedule 40k``.
Measured by us: not yet.
"""

_base_ = ['upernet_vit_b.py']

model = dict(backbone=dict(broadcast='cb'))
