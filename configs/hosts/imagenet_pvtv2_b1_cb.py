"""PVTv2-B1 + CB in the upper half of its blocks, on ImageNet-1K, 120 epochs.

    python tools/train.py configs/hosts/imagenet_pvtv2_b1_cb.py --data-root /data/imagenet

The paper's (Table S14): top-1 76.5.
Measured by us: not yet.
"""

_base_ = ['imagenet_pvtv2_b1.py']

model = dict(backbone=dict(broadcast='cb'))
