"""UperNet on ViT-S.

Drop path 0.05 in every block is XCiT's for its model of about this size (S12).
"""

_base_ = ['upernet_vit.py']

width = 384
model = dict(
    backbone=dict(arch='small', drop_path_rate=0.05, drop_path_mode='constant'),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
