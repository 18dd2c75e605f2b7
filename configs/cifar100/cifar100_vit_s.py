"""ViT-S, from scratch on CIFAR-100: scaled-down pre-training.

    python tools/train.py configs/cifar100/cifar100_vit_s.py --data-root /data/cifar100

Accuracy, the paper's (Table S15): 74.73.
Measured by us: not yet.

The paper gives neither recipe nor input size: we use the ImageNet recipe with images enlarged to
224². Neither config uses repeated augmentation, so they differ only in CB.
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/cifar100.py',
    '../_base_/schedules/imagenet_300e.py',
]

model = dict(
    data_preprocessor=dict(
        num_classes=100,
        mean=[129.304, 124.070, 112.434],
        std=[68.170, 65.392, 70.418],
    ),
    backbone=dict(arch='small'),
    head=dict(in_channels=384, num_classes=100),
)
