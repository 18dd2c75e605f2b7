"""ViT-Ti with a light head at 128², trained by both halves of the pipeline.

It has the four maps of UperNet's recipe and one 1×1 convolution over all of them: most of the
model's capacity is then in the backbone, which is what we compare.
"""

_base_ = ['../../configs/_base_/runtime.py']

norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(128, 128),
    ),
    backbone=dict(
        type='ViTCB',
        arch='tiny',
        img_size=128,
        out_indices=(3, 5, 7, 11),
        pyramid=False,
        drop_path_rate=0.0,
    ),
    decode_head=dict(
        type='FCNHead',
        in_channels=[192] * 4,
        in_index=[0, 1, 2, 3],
        input_transform='resize_concat',
        channels=128,
        num_convs=1,
        kernel_size=1,
        concat_input=False,
        dropout_ratio=0.1,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
test_cfg = dict(type='TestLoop')
log_processor = dict(by_epoch=False)
visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer'
)
