"""UperNet with ViT-S, on Pascal VOC 2012.

    python tools/train.py configs/voc/voc_upernet_vit_s.py --init WEIGHTS

The paper has no score for it. The recipe is that of ADE20K: batch 16, lr 6e-5, 160K iterations or
``--schedule 40k``.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/upernet_vit_s.py',
    '../_base_/datasets/voc2012_aug.py',
    '../_base_/schedules/ade20k.py',
]

model = dict(
    decode_head=dict(num_classes=21),
    auxiliary_head=dict(num_classes=21),
)
