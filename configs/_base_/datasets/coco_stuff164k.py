"""COCO-Stuff 164k: 118,287 training and 5,000 validation images of COCO 2017, 171 classes."""

_base_ = ['labels_as_stored.py']

dataset_type = 'COCOStuffDataset'
data_root = 'data/coco_stuff164k'

train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/train2017', seg_map_path='annotations/train2017'),
    )
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        data_prefix=dict(img_path='images/val2017', seg_map_path='annotations/val2017'),
    )
)
test_dataloader = val_dataloader
