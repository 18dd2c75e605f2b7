"""Scaled-down Mask R-CNN recipe on the embedded scenes, for a CPU.

    python tools/make_scenes.py demo_out/scenes
    python tools/train.py configs/demo/demo_mask_rcnn_vit_ti_cb.py

It shows that everything works together and measures nothing else.
"""

_base_ = ['../mask_rcnn_vit_ti_cb.py']

data_root = 'demo_out/scenes/coco/'
scenes = dict(
    data_root=data_root,
    metainfo=dict(classes=('person', 'car', 'bus', 'boat', 'stop sign', 'sheep')),
)

model = dict(
    neck=dict(out_channels=64),
    rpn_head=dict(
        in_channels=64,
        feat_channels=64,
        anchor_generator=dict(scales=[4]),  # the images are small, and so are their objects
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=256, num_classes=6),
        mask_roi_extractor=dict(out_channels=64),
        mask_head=dict(in_channels=64, conv_out_channels=64, num_classes=6),
    ),
    train_cfg=dict(
        rpn_proposal=dict(nms_pre=500, max_per_img=200), rcnn=dict(sampler=dict(num=128))
    ),
    test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=200)),
)
resize = dict(type='Resize', scale=(256, 192), keep_ratio=True)
train_pipeline = [
    *_base_.train_pipeline[:3],  # image, annotations, flip
    resize,
    _base_.train_pipeline[-1],
]
test_pipeline = [_base_.test_pipeline[0], resize, *_base_.test_pipeline[2:]]
train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    dataset=dict(pipeline=train_pipeline, filter_cfg=dict(min_size=8), **scenes),
)
val_dataloader = dict(num_workers=1, dataset=dict(pipeline=test_pipeline, **scenes))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='demo_out/scenes/coco/annotations/instances_val2017.json')
test_evaluator = val_evaluator

schedule = 'demo'
optim_wrapper = dict(optimizer=dict(lr=3e-4), clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='MultiStepLR', milestones=[8, 11], gamma=0.1, by_epoch=True, begin=0, end=12),
]
train_cfg = dict(val_interval=12)
default_hooks = dict(logger=dict(interval=10), checkpoint=dict(interval=3, save_best=None))
auto_scale_lr = dict(base_batch_size=4)
