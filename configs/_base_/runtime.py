"""Shared by all configs: registration of cb_mm, logging, checkpoints, randomness."""

# cb_mm registers its parts, so these configs also work from mmseg's and mmdet's tools. safe_io lets
# mmengine read checkpoints without running their code, and write files atomically.
custom_imports = dict(imports=['cb_mm', 'cb_mm.safe_io'], allow_failed_imports=False)
# Stateless randomness: a run that was killed and resumed equals one that was not.
# Checkpoints record the broadcast that they were trained with.
custom_hooks = [
    dict(type='ReplayHook'),
    dict(type='MeanLossHook'),
    dict(type='ProvenanceHook'),
]
randomness = dict(seed=0)

default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='SafeCheckpointHook', max_keep_ckpts=3),
    sampler_seed=dict(type='DistSamplerSeedHook'),
)
env_cfg = dict(
    cudnn_benchmark=True,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'),
)
log_level = 'INFO'
load_from = None
resume = False
