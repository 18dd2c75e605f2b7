"""ImageNet-1K in folders, with DeiT's augmentation, and the test sets.

Test: short side 256, centre crop 224.
"""

_base_ = ['deit_augmentation.py']

dataset_type = 'ClassFolders'
data_root = 'data/imagenet'
image_size = 224
bgr_mean = [103.53, 116.28, 123.675]
bgr_std = [57.375, 57.12, 58.395]

train_pipeline = [
    dict(type='LoadImageFromFile'),
    _base_.random_crop,
    _base_.random_flip,
    dict(**_base_.rand_augment, hparams=dict(pad_val=[104, 116, 124], interpolation='bicubic')),
    dict(**_base_.random_erasing, fill_color=bgr_mean, fill_std=bgr_std),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=256, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=image_size),
    # As in ImageNet-C, corrupt the crop that the model sees. Occlusion then hides its centre.
    dict(type='CorruptionPoint', channel_order='bgr'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    **_base_.train_loader,
    num_workers=8,
    sampler=dict(type='ReplayRepeatSampler', shuffle=True, num_repeats=3),
    dataset=dict(
        type=dataset_type, data_root=data_root, data_prefix='train', pipeline=train_pipeline
    ),
)
val_dataloader = dict(
    **_base_.test_loader,
    num_workers=8,
    dataset=dict(type=dataset_type, data_root=data_root, data_prefix='val', pipeline=test_pipeline),
)
test_dataloader = val_dataloader

# tools/test.py --test-set NAME --data-root ITS_FOLDER
test_set = 'imagenet'
test_sets = {
    # 10,000 new images; the folders are named after class numbers.
    'imagenet-v2': dict(
        test_dataloader=dict(
            dataset=dict(
                data_root='data/imagenetv2-matched-frequency-format-val',
                data_prefix='',
                labels='numbers',
            )
        )
    ),
    # ImageNet-C itself, or a copy by tools/corrupt.py: one folder of a corruption and severity,
    # whose images are the crops already.
    'imagenet-c': dict(
        test_dataloader=dict(
            dataset=dict(
                data_root='data/imagenet-c/fog/3',
                data_prefix='',
                labels='imagenet',
                pipeline=[dict(type='LoadImageFromFile'), dict(type='PackInputs')],
            )
        )
    ),
    # The validation images with several labels each; 3,163 of the 50,000 have none and do not
    # count. --cfg-options test_evaluator.real_labels=real.json uses the file itself.
    'imagenet-real': dict(
        test_evaluator=dict(
            _delete_=True, type='LabelSetAccuracy', topk=(1, 5), real_labels='timm'
        ),
    ),
    # 7,500 images of 200 classes; only these classes compete.
    'imagenet-a': dict(
        test_dataloader=dict(
            dataset=dict(data_root='data/imagenet-a', data_prefix='', labels='imagenet')
        ),
        test_evaluator=dict(_delete_=True, type='LabelSetAccuracy', topk=(1, 5), present_only=True),
    ),
}
