"""ViT-S + CB in the upper layers, from scratch on CIFAR-100: scaled-down pre-training.

    python tools/train.py configs/cifar100/cifar100_vit_s_cb.py --data-root /data/cifar100

Accuracy, the paper's (Table S15): 75.43.
Measured by us: not yet.
"""

_base_ = ['cifar100_vit_s.py']

model = dict(backbone=dict(broadcast='cb'))
