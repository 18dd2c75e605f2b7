"""UperNet with ViT-S + CB in the upper layers, on Cityscapes.

    python tools/train.py configs/cityscapes/cityscapes_upernet_vit_s_cb.py --init WEIGHTS

The paper has no score for it. Measured by us: not yet.
"""

_base_ = ['cityscapes_upernet_vit_s.py']

model = dict(backbone=dict(broadcast='cb'))
