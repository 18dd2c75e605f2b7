"""ViT-micro (8 layers of 96 channels, patch 4), from scratch on CIFAR-10, on a CPU.

    python tools/train.py configs/cifar10/cifar10_vit_micro.py --data-root /data/cifar10

Top-1, the paper's: none, it has no such model.
Measured by us: 63.66 with seed 0 (the registered study, docs/study.md, is not finished).
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/cifar10.py',
    '../_base_/schedules/cifar10_8e.py',
]

model = dict(
    data_preprocessor=dict(
        num_classes=10,
        mean=[125.307, 122.961, 113.858],
        std=[62.993, 62.089, 66.705],
    ),
    backbone=dict(
        arch=dict(patch_size=4, embed_dim=96, depth=8, num_heads=3),
        img_size=32,
        drop_path_rate=0.0,
    ),
    head=dict(in_channels=96, num_classes=10),
    train_cfg=dict(_delete_=True),  # neither Mixup nor CutMix: there are few epochs
)
