"""UperNet with ViT-S + CB in the upper layers, on COCO-Stuff 164k.

    python tools/train.py configs/coco_stuff/coco_stuff_upernet_vit_s_cb.py --init WEIGHTS

The paper has no score for it. Measured by us: not yet.
"""

_base_ = ['coco_stuff_upernet_vit_s.py']

model = dict(backbone=dict(broadcast='cb'))
