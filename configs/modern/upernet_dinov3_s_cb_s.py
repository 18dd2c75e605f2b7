"""UperNet with DINOv3-S + CB_S in all layers, on ADE20K.

    python tools/train.py configs/modern/upernet_dinov3_s_cb_s.py --init WEIGHTS

WEIGHTS: vit_small_patch16_dinov3.lvd1689m (timm), or a file.
DINOv3 ViT-S/16: rotary positions, four registers.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/upernet_ade20k.py']

width = 384
model = dict(
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='vit_small_patch16_dinov3',
        broadcast='cb_s',
        layers='all',
        out_indices=(3, 5, 7, 11),
        pyramid_norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
