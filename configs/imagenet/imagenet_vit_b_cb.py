"""ViT-B + CB in the upper layers, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_b_cb.py --data-root /data/imagenet

The paper's (Table 5): top-1 82.1, top-5 95.7, ImageNet-V2 71.1, ImageNet-ReaL 86.9.
Measured by us: not yet.

As in the paper, 10 epochs of warm-up and more drop path. It does not say how much: 0.2 is our
reading, the value that it gives for distillation.
"""

_base_ = ['imagenet_vit_b.py']

model = dict(backbone=dict(broadcast='cb', drop_path_rate=0.2))
param_scheduler = [
    dict(**_base_.warmup, begin=0, end=10),
    dict(**_base_.cosine, begin=10, end=300),
]
