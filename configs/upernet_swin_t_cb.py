"""UperNet with Swin-Ti + CB in the upper half of its blocks, on ADE20K.

    python tools/train.py configs/upernet_swin_t_cb.py --init swin_tiny_patch4_window7_224

The paper tests Swin-Ti only on ImageNet (Table S14: 79.3, with CB 79.5), so it gives no mIoU to
compare with. The recipe is the one for the ViTs here; drop path 0.3, a norm on every map and no
weight decay on the position bias are Swin's own for UperNet.
Measured by us: not yet.
"""

_base_ = ['_base_/upernet_ade20k.py']

model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='swin_tiny_patch4_window7_224',
        broadcast='cb',
        img_size=512,  # crop size, so that all stages shift their windows
        drop_path_rate=0.3,
        norm_out=True,
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384),
)
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys={'relative_position_bias_table': dict(decay_mult=0.0)})
)
