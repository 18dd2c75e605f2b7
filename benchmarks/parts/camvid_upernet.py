"""Scaled-down UperNet on ViT-Ti: 128 channels, 224² crops; otherwise the paper's model."""

_base_ = ['../../configs/_base_/models/upernet_vit.py', '../../configs/_base_/runtime.py']

norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    # The ImageNet weights were trained with this; from scratch any value will do.
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5], std=[127.5, 127.5, 127.5], seg_pad_val=11, size=(224, 224)
    ),
    backbone=dict(arch='tiny', pyramid_norm_cfg=norm_cfg),
    decode_head=dict(
        in_channels=[192, 192, 192, 192],
        channels=128,
        num_classes=11,
        ignore_index=11,
        norm_cfg=norm_cfg,
    ),
    auxiliary_head=dict(
        in_channels=192, channels=128, num_classes=11, ignore_index=11, norm_cfg=norm_cfg
    ),
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
log_processor = dict(by_epoch=False)
visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
