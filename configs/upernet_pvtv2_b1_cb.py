"""UperNet with PVTv2-B1 + CB in the upper half of its blocks, on ADE20K.

    python tools/train.py configs/upernet_pvtv2_b1_cb.py --init pvt_v2_b1

The paper tests PVTv2-B1 only on ImageNet (Table S14: 76.4, with CB 76.5), so it gives no mIoU to
compare with. The recipe is the one for the ViTs here; drop path 0.1 is PVT v2's own.
Measured by us: not yet.
"""

_base_ = ['_base_/upernet_ade20k.py']

model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='pvt_v2_b1',
        broadcast='cb',
        drop_path_rate=0.1,
    ),
    decode_head=dict(in_channels=[64, 128, 320, 512]),
    auxiliary_head=dict(in_channels=320),
)
