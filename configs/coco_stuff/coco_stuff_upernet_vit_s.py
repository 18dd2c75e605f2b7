"""UperNet with ViT-S, on COCO-Stuff 164k.

    python tools/train.py configs/coco_stuff/coco_stuff_upernet_vit_s.py --init WEIGHTS

The paper has no score for it. The recipe is that of ADE20K: batch 16, lr 6e-5, 160K iterations or
``--schedule 40k``.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/upernet_vit_s.py',
    '../_base_/datasets/coco_stuff164k.py',
    '../_base_/schedules/ade20k.py',
]

model = dict(
    decode_head=dict(num_classes=171),
    auxiliary_head=dict(num_classes=171),
)
