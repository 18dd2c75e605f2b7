"""AdamW and polynomial decay for 160K (default) or, with ``--schedule 40k``, 40K iterations.

The recipe is XCiT's, which the paper follows: batch 16, lr 6e-5, weight decay 0.01 but none on
the position embedding and on parameters with "norm" in their name (those of the backbone; the batch
norms of heads and pyramid decay), 1,500 iterations of linear warm-up from a factor of 1e-6, then
decay with power 1.0 to 0. Our reading: the decay starts where the warm-up ends; no weight decay on
CB_S's scales, which are gains like those of a norm. The class token decays, as in XCiT.
"""

_base_ = ['../runtime.py']

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys={
            'norm': dict(decay_mult=0.0),
            'pos_embed': dict(decay_mult=0.0),
            'broadcast.scale': dict(decay_mult=0.0),
        },
    ),
)
# A validation is logged at its iteration, not at epoch 0.
logger = dict(log_metric_by_epoch=False)
warm_up = dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500)
schedules = {
    '40k': dict(
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=40_000, val_interval=4_000),
        param_scheduler=[
            warm_up,
            dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=1500, end=40_000),
        ],
        default_hooks=dict(
            logger=logger, checkpoint=dict(by_epoch=False, interval=4_000, save_best='mIoU')
        ),
    ),
    '160k': dict(
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=160_000, val_interval=16_000),
        param_scheduler=[
            warm_up,
            dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, begin=1500, end=160_000),
        ],
        default_hooks=dict(
            logger=logger, checkpoint=dict(by_epoch=False, interval=16_000, save_best='mIoU')
        ),
    ),
}
schedule = '160k'
train_cfg = schedules['160k']['train_cfg']
param_scheduler = schedules['160k']['param_scheduler']
default_hooks = schedules['160k']['default_hooks']
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=16)
