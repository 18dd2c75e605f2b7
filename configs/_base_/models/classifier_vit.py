"""A ViT with a linear layer on its class token, trained like DeiT.

The backbone's keys are timm's: pass a checkpoint to any other config with ``--init``, unchanged.
"""

_base_ = ['classifier.py']

num_classes = 1000
model = dict(
    data_preprocessor=dict(num_classes=num_classes),
    backbone=dict(type='ViTCB', out_type='cls', drop_path_rate=0.1),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=num_classes,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    # One of the two per batch, with equal probability.
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
