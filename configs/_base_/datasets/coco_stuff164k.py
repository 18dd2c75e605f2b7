"""COCO-Stuff 164k: 118,287 training and 5,000 validation images of COCO 2017, 171 classes."""

_base_ = ['ade20k.py']

dataset_type = 'COCOStuffDataset'
data_root = 'data/coco_stuff164k'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    *_base_.train_pipeline[2:],
]
test_pipeline = [
    *_base_.test_pipeline[:2],
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/train2017', seg_map_path='annotations/train2017'),
        pipeline=train_pipeline,
    )
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/val2017', seg_map_path='annotations/val2017'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
