"""Mask R-CNN + FPN with Swin-Ti + CB, on COCO, 1×.

CB is in the upper half of the blocks, but not in those that feed the FPN.

    python tools/train.py configs/mask_rcnn_swin_t_cb.py --init swin_tiny_patch4_window7_224

The paper tests Swin-Ti only on ImageNet (Table S14: 79.3, with CB 79.5), so it gives no AP to
compare with. The recipe is the one for the ViTs here; drop path 0.1, a norm on every map and no
weight decay on the position bias are Swin's own for Mask R-CNN, 1×.
Measured by us: not yet.
"""

_base_ = ['_base_/mask_rcnn_coco.py']

model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='swin_tiny_patch4_window7_224',
        broadcast='cb',
        skip_out_layers=True,
        img_size=800,  # the images are this large: all stages shift their windows
        drop_path_rate=0.1,
        norm_out=True,
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys={'relative_position_bias_table': dict(decay_mult=0.0)})
)
