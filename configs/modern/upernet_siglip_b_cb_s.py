"""UperNet with SigLIP-B + CB_S in all layers, on ADE20K.

    python tools/train.py configs/modern/upernet_siglip_b_cb_s.py --init WEIGHTS

WEIGHTS: vit_base_patch16_siglip_224.v2_webli (timm), or a file.
SigLIP 2 ViT-B/16, no class token.
CB_S leaves them unchanged at the start; the paper has no score for this model. The recipe is the
one for the ViTs here.
Measured by us: not yet.
"""

_base_ = ['../_base_/upernet_ade20k.py']

width = 768
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],
        std=[127.5, 127.5, 127.5],
    ),
    backbone=dict(arch='vit_base_patch16_siglip_224', broadcast='cb_s', layers='all'),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
