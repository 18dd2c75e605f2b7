"""AdamW and one cosine over 300 epochs, with 5 epochs of warm-up.

From the paper: betas (0.9, 0.999), lr 1e-3 × batch / 1024, weight decay 0.05, 300 epochs. From
DeiT's recipe, which it follows: 5 epochs of warm-up from 1e-6, cosine to 1e-5, no weight decay on
norms, biases, tokens and position embeddings. Our reading: the cosine starts where the warm-up
ends, both advance at every iteration, and there is no weight averaging.
"""

_base_ = ['../runtime.py']

# The last import needs mmpretrain, which only classification uses.
custom_imports = dict(imports=['cb_mm', 'cb_mm.safe_io', 'cb_mm.evaluation.classification'])

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05, eps=1e-8),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        custom_keys={
            'pos_embed': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'dist_token': dict(decay_mult=0.0),
            'in_proj_bias': dict(decay_mult=0.0),  # of torch's attention, in PVT
            'relative_position_bias_table': dict(decay_mult=0.0),  # of Swin
            'broadcast.scale': dict(decay_mult=0.0),
        },
    ),
)
schedule = '300e'
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
warmup = dict(type='LinearLR', start_factor=1e-3, by_epoch=True, convert_to_iter_based=True)
cosine = dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, convert_to_iter_based=True)
param_scheduler = [dict(**warmup, begin=0, end=5), dict(**cosine, begin=5, end=300)]
default_hooks = dict(checkpoint=dict(interval=1, save_best='accuracy/top1'))
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=1024)
