"""PiT-B + CB in the upper half of its blocks, on ImageNet-1K, 300 epochs.

    python tools/train.py configs/hosts/imagenet_pit_b_cb.py --data-root /data/imagenet

The paper's (Table 11): top-1 82.6.
Measured by us: not yet.
"""

_base_ = ['imagenet_pit_b.py']

model = dict(backbone=dict(broadcast='cb'))
