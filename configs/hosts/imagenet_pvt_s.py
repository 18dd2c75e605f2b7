"""PVT-S, on ImageNet-1K, 120 epochs.

    python tools/train.py configs/hosts/imagenet_pvt_s.py --data-root /data/imagenet

The paper's (Table S14): top-1 76.7.
Measured by us: not yet.

The backbone is mmdet's, which has no class token: the mean of the last map is classified
(our reading; the authors' model has a class token in its last stage).
The recipe is DeiT's, our reading except for the epochs; drop path 0.1 is the host's own.
"""

_base_ = [
    '../_base_/models/classifier_vit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/imagenet_120e.py',
]

model = dict(
    backbone=dict(
        _delete_=True,
        type='WithCB',
        backbone=dict(
            type='mmdet.PyramidVisionTransformer', num_layers=[3, 4, 6, 3], drop_path_rate=0.1
        ),
        broadcast=None,
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(in_channels=512),
)
