"""ViT-micro + CB in the upper layers, from scratch on CIFAR-10, on a CPU.

    python tools/train.py configs/cifar10/cifar10_vit_micro_cb.py --data-root /data/cifar10

Measured by us: see docs/study.md. The paper has no such model.
"""

_base_ = ['cifar10_vit_micro.py']

model = dict(backbone=dict(broadcast='cb'))
