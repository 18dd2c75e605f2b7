"""UperNet with DINOv2-S + CB_S in all layers, on ADE20K.

    python tools/train.py configs/modern/upernet_dinov2_s_cb_s.py --init WEIGHTS

WEIGHTS: vit_small_patch14_reg4_dinov2.lvd142m (timm), or a file.
DINOv2 ViT-S/14 with four registers.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/upernet_ade20k.py']

width = 384
model = dict(
    data_preprocessor=dict(
        size=(518, 518),  # 37 patches of 14: crops of 512 are padded, labels too
        test_cfg=dict(size_divisor=14),  # padded to whole patches, and cut off again
    ),
    backbone=dict(arch='vit_small_patch14_reg4_dinov2', broadcast='cb_s', layers='all'),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
