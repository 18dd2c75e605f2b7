"""Cityscapes: 2,975 training and 500 validation images of 2048 x 1024, 19 classes; its test sets.

Crops of 512 x 1024, as mmsegmentation's configs have them.
"""

_base_ = ['ade20k.py']

dataset_type = 'CityscapesDataset'
data_root = 'data/cityscapes'
crop_size = (512, 1024)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(2048, 1024), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    *_base_.train_pipeline[4:],
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(2048, 1024), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='leftImg8bit/train', seg_map_path='gtFine/train'),
        pipeline=train_pipeline,
    )
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='leftImg8bit/val', seg_map_path='gtFine/val'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader

# tools/test.py --test-set NAME --data-root ITS_FOLDER
# ACDC has the classes and labels of Cityscapes; mmseg has no class of its own for it. Its images
# are 1920 x 1080 and keep their shape: (2048, 1024) makes them 1820 x 1024.
acdc = dict(
    type=dataset_type,
    data_root='data/acdc',
    img_suffix='_rgb_anon.png',
    seg_map_suffix='_gt_labelTrainIds.png',
    pipeline=test_pipeline,
)
acdc_fog = dict(**acdc, data_prefix=dict(img_path='rgb_anon/fog/val', seg_map_path='gt/fog/val'))
acdc_night = dict(
    **acdc, data_prefix=dict(img_path='rgb_anon/night/val', seg_map_path='gt/night/val')
)
acdc_rain = dict(**acdc, data_prefix=dict(img_path='rgb_anon/rain/val', seg_map_path='gt/rain/val'))
acdc_snow = dict(**acdc, data_prefix=dict(img_path='rgb_anon/snow/val', seg_map_path='gt/snow/val'))
test_set = 'cityscapes'
test_sets = {
    # 406 validation images; those of the test set have no public labels.
    'acdc': dict(
        test_dataloader=dict(
            dataset=dict(
                _delete_=True,
                type='ConcatDataset',
                datasets=[acdc_fog, acdc_night, acdc_rain, acdc_snow],
            )
        )
    ),
    'acdc-fog': dict(test_dataloader=dict(dataset=dict(_delete_=True, **acdc_fog))),
    'acdc-night': dict(test_dataloader=dict(dataset=dict(_delete_=True, **acdc_night))),
    'acdc-rain': dict(test_dataloader=dict(dataset=dict(_delete_=True, **acdc_rain))),
    'acdc-snow': dict(test_dataloader=dict(dataset=dict(_delete_=True, **acdc_snow))),
    # 50 validation images by night, 1920 x 1080.
    'dark-zurich': dict(
        test_dataloader=dict(
            dataset=dict(
                type='DarkZurichDataset',
                data_root='data/dark_zurich',
                data_prefix=dict(img_path='rgb_anon/val', seg_map_path='gt/val'),
            )
        )
    ),
}
