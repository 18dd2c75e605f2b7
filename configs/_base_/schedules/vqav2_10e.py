"""AdamW over 10 epochs: ViLT's fine-tuning for VQAv2, which the paper follows.

Batch 256, lr 1e-4, ten times that for the head, linear warm-up over a tenth of the training, linear
decay to zero, weight decay 0.01 except for norms and biases, betas (0.9, 0.98). Our reading: no
weight decay on CB_S's scales.
"""

_base_ = ['../runtime.py']

# The last import needs transformers, which only ViLT uses.
custom_imports = dict(imports=['cb_mm', 'cb_mm.safe_io', 'cb_mm.evaluation.vqa'])

head_rate = dict(lr_mult=10.0)
head_rate_without_decay = dict(lr_mult=10.0, decay_mult=0.0)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, eps=1e-8),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        # A custom key takes the place of the two lines above, so the head has its own.
        custom_keys={
            'head.classifier': head_rate,
            'head.classifier.0.bias': head_rate_without_decay,
            'head.classifier.1': head_rate_without_decay,  # the norm
            'head.classifier.3.bias': head_rate_without_decay,
            'broadcast.scale': dict(decay_mult=0.0),
        },
    ),
)
schedule = '10e'
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=10, val_interval=1)
param_scheduler = [
    dict(
        type='LinearLR',
        start_factor=1e-3,
        by_epoch=True,
        begin=0,
        end=1,
        convert_to_iter_based=True,
    ),
    dict(
        type='PolyLR',
        power=1.0,
        eta_min=0.0,
        by_epoch=True,
        begin=1,
        end=10,
        convert_to_iter_based=True,
    ),
]
default_hooks = dict(checkpoint=dict(interval=1, save_best='vqa/accuracy'))
env_cfg = dict(cudnn_benchmark=False)  # images have many sizes
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=256)
