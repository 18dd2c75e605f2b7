"""Adam for 200 epochs; the learning rate falls when the validation loss stops falling.

From the sparse-attention paper: Adam, lr 1e-3, a plateau scheduler, 200 epochs. From its code: lr ×
0.1 after 10 epochs without a lower validation loss, batch 16 × 4, best checkpoint by accuracy.
"""

_base_ = ['../runtime.py']

# The last import needs mmpretrain, which only classification uses.
custom_imports = dict(imports=['cb_mm', 'cb_mm.safe_io', 'cb_mm.evaluation.classification'])

optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='Adam', lr=1e-3))
schedule = '200e'
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=200, val_interval=1)
param_scheduler = [
    dict(
        type='ReduceOnPlateauLR',
        monitor='validation/cross_entropy',
        rule='less',
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_rule='rel',
    )
]
default_hooks = dict(checkpoint=dict(interval=1, save_best='accuracy/top1'))
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(enable=False, base_batch_size=64)
