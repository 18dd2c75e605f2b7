"""LocalViT-Ti, on ImageNet-1K, 150 epochs.

    python tools/train.py configs/hosts/imagenet_localvit_ti.py --data-root /data/imagenet

The paper's (Table S14): top-1 69.4.
Measured by us: not yet.

It classifies from its class token.
The recipe is DeiT's, our reading except for the epochs; drop path 0.1 is the host's own.
"""

_base_ = [
    '../_base_/models/classifier_timm.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_150e.py',
]

model = dict(backbone=dict(model_name='localvit_tiny_patch16_224'), head=dict(in_channels=192))
