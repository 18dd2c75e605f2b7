"""Mask R-CNN with ViTDet-B + CB_S in the layers that do not feed the pyramid, on COCO, 1×.

    python tools/train.py configs/modern/mask_rcnn_vitdet_b_cb_s.py --init WEIGHTS

WEIGHTS: vit_base_patch16_224.mae (timm), or a file.
From ViTDet: windows of 14 patches, four blocks that attend to the whole image, the simple pyramid
instead of an FPN, drop path 0.1 and layer decay 0.7. Not from ViTDet: relative positions (timm's
ViT has none), its heads, its crops of 1024 and its schedule; those are the ones for the ViTs here.
CB_S takes the mean over all tokens of the image, not of a window. The paper has no score for this
model.
Measured by us: not yet.
"""

_base_ = ['../_base_/mask_rcnn_coco.py']

model = dict(
    backbone=dict(
        arch='base',
        broadcast='cb_s',
        layers='all',
        out_indices=(11,),
        pyramid=False,
        pyramid_norm_cfg=None,
        window=14,
        global_blocks=(2, 5, 8, 11),
        drop_path_rate=0.1,
    ),
    neck=dict(_delete_=True, type='SimplePyramid', in_channels=768, out_channels=256, num_outs=5),
)
optim_wrapper = dict(
    constructor='ViTLayerDecayConstructor', paramwise_cfg=dict(_delete_=True, layer_decay=0.7)
)
