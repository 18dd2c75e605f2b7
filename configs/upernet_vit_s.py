"""UperNet with ViT-S, on ADE20K.

    python tools/train.py configs/upernet_vit_s.py --init WEIGHTS

mIoU, the paper's (Table 6): 43.3 with 160K iterations, 41.5 with ``--schedule 40k``.
Measured by us: not yet.
"""

_base_ = [
    '_base_/models/upernet_vit_s.py',
    '_base_/datasets/ade20k.py',
    '_base_/schedules/ade20k.py',
]
