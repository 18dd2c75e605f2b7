"""Mask R-CNN on COCO, 1×: what all its configs share but the backbone."""

_base_ = [
    'models/mask_rcnn_vit.py',
    'datasets/coco_instance.py',
    'schedules/coco_1x.py',
]

# Images come in hundreds of sizes, and cuDNN would measure its algorithms for each of them.
env_cfg = dict(cudnn_benchmark=False)
