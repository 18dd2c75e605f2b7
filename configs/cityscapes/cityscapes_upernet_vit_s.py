"""UperNet with ViT-S, on Cityscapes.

    python tools/train.py configs/cityscapes/cityscapes_upernet_vit_s.py --init WEIGHTS

The paper has no score for it. The recipe is that of ADE20K: batch 16, lr 6e-5, 160K iterations or
``--schedule 40k``.
Measured by us: not yet.
"""

_base_ = [
    '../_base_/models/upernet_vit_s.py',
    '../_base_/datasets/cityscapes.py',
    '../_base_/schedules/ade20k.py',
]

model = dict(
    type='SlidingEncoderDecoder',  # mmseg's, with cheaper windows in testing
    data_preprocessor=dict(size=(512, 1024)),
    decode_head=dict(num_classes=19),
    auxiliary_head=dict(num_classes=19),
    # Windows of the training size: positions are then those that the model has learnt, and the
    # memory is that of one window. --cfg-options model.test_cfg.mode=whole tests whole images.
    test_cfg=dict(mode='slide', crop_size=(512, 1024), stride=(341, 683)),
)
