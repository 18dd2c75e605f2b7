"""PVT-S + CB in the upper half of its blocks, on ImageNet-1K, 120 epochs.

    python tools/train.py configs/hosts/imagenet_pvt_s_cb.py --data-root /data/imagenet

The paper's (Table S14): top-1 77.3.
Measured by us: not yet.
"""

_base_ = ['imagenet_pvt_s.py']

model = dict(backbone=dict(broadcast='cb'))
