"""ViT-Ti + CB in the upper layers, pre-training on ImageNet-1K.

    python tools/train.py configs/imagenet/imagenet_vit_ti_cb.py --data-root /data/imagenet

The paper's (Table 5): top-1 73.4, top-5 91.9, ImageNet-V2 61.3, ImageNet-ReaL 81.0.
Measured by us: not yet.

As in the paper, without repeated augmentation.
"""

_base_ = ['imagenet_vit_ti.py']

model = dict(backbone=dict(broadcast='cb'))
train_dataloader = dict(sampler=dict(_delete_=True, type='ReplaySampler', shuffle=True))
