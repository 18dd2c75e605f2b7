"""AdamW for 12 epochs, steps at epochs 8 and 11.

From the paper: lr 1e-4 × batch / 16, weight decay 0.05. From XCiT's recipe, which it follows: no
weight decay on the position embedding and on parameters with "norm" in their name (those of the
backbone; the batch norm of the pyramid decays), and 500 iterations of linear warm-up from 0.001.
Our reading: none on CB_S's scales either. The class token decays, as in XCiT.
"""

_base_ = ['../runtime.py']

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        custom_keys={
            'norm': dict(decay_mult=0.0),
            'pos_embed': dict(decay_mult=0.0),
            'broadcast.scale': dict(decay_mult=0.0),
        },
    ),
)
schedule = '1x'
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', milestones=[8, 11], gamma=0.1, by_epoch=True, begin=0, end=12),
]
default_hooks = dict(checkpoint=dict(interval=1, save_best='coco/bbox_mAP'))
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=16)
