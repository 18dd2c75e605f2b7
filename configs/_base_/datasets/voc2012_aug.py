"""Pascal VOC 2012 with the further labels of SBD: 1,464 + 9,118 training, 1,449 validation images.

21 classes, one of them the background; the edge of every object (255) is ignored.
"""

_base_ = ['labels_as_stored.py']

dataset_type = 'PascalVOCDataset'
data_root = 'data/VOCdevkit/VOC2012'

voc = dict(type=dataset_type, data_root=data_root)
train = dict(
    **voc,
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClass'),
    ann_file='ImageSets/Segmentation/train.txt',
    pipeline=_base_.train_pipeline,
)
aug = dict(
    **voc,
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClassAug'),
    ann_file='ImageSets/Segmentation/aug.txt',
    pipeline=_base_.train_pipeline,
)
train_dataloader = dict(
    dataset=dict(_delete_=True, type='ConcatDataset', datasets=[train, aug]),
)
val_dataloader = dict(
    dataset=dict(
        **voc,
        data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClass'),
        ann_file='ImageSets/Segmentation/val.txt',
    )
)
test_dataloader = val_dataloader
