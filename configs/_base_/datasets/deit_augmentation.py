"""Shared by the classification data sets: DeiT's augmentation, loaders and accuracy.

The paper follows DeiT: random resized crop (bicubic), flip, RandAugment (2 operations, magnitude 9,
spread 0.5, increasing), random erasing with noise in a quarter of the images; Mixup, CutMix and
label smoothing are in the model. Each data set adds what depends on its colours: the fill values of
RandAugment and random erasing.
"""

default_scope = 'mmpretrain'
image_size = 224

random_crop = dict(
    type='RandomResizedCrop', scale=image_size, backend='pillow', interpolation='bicubic'
)
random_flip = dict(type='RandomFlip', prob=0.5, direction='horizontal')
rand_augment = dict(
    type='RandAugment',
    policies='timm_increasing',
    num_policies=2,
    total_level=10,
    magnitude_level=9,
    magnitude_std=0.5,
)
random_erasing = dict(
    type='RandomErasing',
    erase_prob=0.25,
    mode='rand',
    min_area_ratio=0.02,
    max_area_ratio=0.3333333333333333,
)
train_loader = dict(
    batch_size=128,  # × 8 GPUs = 1024
    persistent_workers=True,
    drop_last=True,
)
test_loader = dict(
    batch_size=128, persistent_workers=True, sampler=dict(type='DefaultSampler', shuffle=False)
)
test_evaluator = dict(type='Accuracy', topk=(1, 5))
# The loss is for the curves of a run: tools/plot_curves.py.
val_evaluator = [test_evaluator, dict(type='ValidationLoss')]
visualizer = dict(
    type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
