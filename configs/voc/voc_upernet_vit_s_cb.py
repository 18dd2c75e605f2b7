"""UperNet with ViT-S + CB in the upper layers, on Pascal VOC 2012.

    python tools/train.py configs/voc/voc_upernet_vit_s_cb.py --init WEIGHTS

The paper has no score for it. Measured by us: not yet.
"""

_base_ = ['voc_upernet_vit_s.py']

model = dict(backbone=dict(broadcast='cb'))
