"""ViT-S + CB in the upper layers, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_s_cb.py --data-root /data/imagenet

The paper's (Table 5): top-1 80.8, top-5 95.4, ImageNet-V2 69.3, ImageNet-ReaL 86.2.
Measured by us: not yet.

As in the paper, without repeated augmentation.
"""

_base_ = ['imagenet_vit_s.py']

model = dict(backbone=dict(broadcast='cb'))
train_dataloader = dict(sampler=dict(_delete_=True, type='ReplaySampler', shuffle=True))
