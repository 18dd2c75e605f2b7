cosine = dict(
    by_epoch=True,
    convert_to_iter_based=True,
    eta_min=1e-05,
    type='CosineAnnealingLR')
custom_hooks = [
    dict(type='ReplayHook'),
    dict(type='MeanLossHook'),
    dict(type='ProvenanceHook'),
]
custom_imports = dict(
    allow_failed_imports=False,
    imports=[
        'cb_mm',
        'cb_mm.safe_io',
        'cb_mm.evaluation.classification',
    ])
data_root = 'data/cifar10'
dataset_type = 'CIFAR10Images'
default_hooks = dict(
    checkpoint=dict(
        interval=1,
        max_keep_ckpts=3,
        save_best='accuracy/top1',
        type='SafeCheckpointHook'),
    logger=dict(interval=50, type='LoggerHook'),
    param_scheduler=dict(type='ParamSchedulerHook'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    timer=dict(type='IterTimerHook'))
default_scope = 'mmpretrain'
env_cfg = dict(
    cudnn_benchmark=True,
    dist_cfg=dict(backend='gloo'),
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0))
log_level = 'INFO'
model = dict(
    backbone=dict(
        arch=dict(depth=8, embed_dim=96, num_heads=3, patch_size=4),
        broadcast=None,
        drop_path_rate=0.0,
        img_size=32,
        out_type='cls',
        type='ViTCB'),
    data_preprocessor=dict(
        mean=[
            125.307,
            122.961,
            113.858,
        ],
        num_classes=10,
        std=[
            62.993,
            62.089,
            66.705,
        ],
        to_rgb=True,
        type='ClsDataPreprocessor'),
    head=dict(
        in_channels=96,
        init_cfg=dict(layer='Linear', std=0.02, type='TruncNormal'),
        loss=dict(
            label_smooth_val=0.1, mode='original', type='LabelSmoothLoss'),
        num_classes=10,
        type='VisionTransformerClsHead'),
    train_cfg=dict(),
    type='ImageClassifier')
num_classes = 1000
optim_wrapper = dict(
    optimizer=dict(
        betas=(
            0.9,
            0.999,
        ),
        eps=1e-08,
        lr=0.001,
        type='AdamW',
        weight_decay=0.05),
    paramwise_cfg=dict(
        bias_decay_mult=0.0,
        custom_keys=dict({
            'broadcast.scale': dict(decay_mult=0.0),
            'cls_token': dict(decay_mult=0.0),
            'dist_token': dict(decay_mult=0.0),
            'in_proj_bias': dict(decay_mult=0.0),
            'pos_embed': dict(decay_mult=0.0),
            'relative_position_bias_table': dict(decay_mult=0.0)
        }),
        norm_decay_mult=0.0),
    type='OptimWrapper')
param_scheduler = [
    dict(
        begin=0,
        by_epoch=True,
        convert_to_iter_based=True,
        end=1,
        start_factor=0.001,
        type='LinearLR'),
    dict(
        begin=1,
        by_epoch=True,
        convert_to_iter_based=True,
        end=8,
        eta_min=1e-05,
        type='CosineAnnealingLR'),
]
randomness = dict(seed=0)
schedule = '8e'
test_cfg = dict(type='TestLoop')
test_dataloader = dict(
    batch_size=128,
    dataset=dict(
        data_root='data/cifar10',
        pipeline=[
            dict(channel_order='bgr', type='CorruptionPoint'),
            dict(type='PackInputs'),
        ],
        split='test',
        type='CIFAR10Images'),
    num_workers=0,
    sampler=dict(shuffle=False, type='DefaultSampler'))
test_evaluator = dict(
    topk=(
        1,
        5,
    ), type='Accuracy')
test_pipeline = [
    dict(channel_order='bgr', type='CorruptionPoint'),
    dict(type='PackInputs'),
]
train_cfg = dict(max_epochs=8, type='EpochBasedTrainLoop', val_interval=2)
train_dataloader = dict(
    batch_size=128,
    dataset=dict(
        data_root='data/cifar10',
        pipeline=[
            dict(crop_size=32, padding=4, type='RandomCrop'),
            dict(direction='horizontal', prob=0.5, type='RandomFlip'),
            dict(type='PackInputs'),
        ],
        split='train',
        type='CIFAR10Images'),
    drop_last=True,
    num_workers=0,
    sampler=dict(shuffle=True, type='ReplaySampler'))
train_pipeline = [
    dict(crop_size=32, padding=4, type='RandomCrop'),
    dict(direction='horizontal', prob=0.5, type='RandomFlip'),
    dict(type='PackInputs'),
]
val_cfg = dict(type='ValLoop')
val_dataloader = dict(
    batch_size=128,
    dataset=dict(
        data_root='data/cifar10',
        pipeline=[
            dict(channel_order='bgr', type='CorruptionPoint'),
            dict(type='PackInputs'),
        ],
        split='test',
        type='CIFAR10Images'),
    num_workers=0,
    sampler=dict(shuffle=False, type='DefaultSampler'))
val_evaluator = [
    dict(topk=(
        1,
        5,
    ), type='Accuracy'),
    dict(type='ValidationLoss'),
]
visualizer = dict(
    name='visualizer',
    type='UniversalVisualizer',
    vis_backends=[
        dict(type='LocalVisBackend'),
    ])
warmup = dict(
    by_epoch=True,
    convert_to_iter_based=True,
    start_factor=0.001,
    type='LinearLR')

