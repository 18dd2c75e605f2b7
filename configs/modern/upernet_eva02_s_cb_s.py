"""UperNet with EVA02-S + CB_S in all layers, on ADE20K.

    python tools/train.py configs/modern/upernet_eva02_s_cb_s.py --init WEIGHTS

WEIGHTS: eva02_small_patch14_224.mim_in22k (timm), or a file.
EVA-02 ViT-S/14: rotary positions, SwiGLU.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/upernet_ade20k.py']

width = 384
model = dict(
    data_preprocessor=dict(
        mean=[122.7709383, 116.7460125, 104.09373615],
        std=[68.5005327, 66.6321579, 70.32316305],
        size=(518, 518),  # 37 patches of 14: crops of 512 are padded, labels too
        test_cfg=dict(size_divisor=14),  # padded to whole patches, and cut off again
    ),
    backbone=dict(
        _delete_=True,
        type='TimmCB',
        model_name='eva02_small_patch14_224',
        broadcast='cb_s',
        layers='all',
        out_indices=(3, 5, 7, 11),
        pyramid_norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
