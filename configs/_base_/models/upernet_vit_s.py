"""UperNet on ViT-S, with the settings of configs/upernet_vit_s.py, for other data sets."""

_base_ = ['upernet_vit.py']

width = 384
model = dict(
    backbone=dict(arch='small', drop_path_rate=0.05, drop_path_mode='constant'),
    decode_head=dict(in_channels=[width, width, width, width]),
    auxiliary_head=dict(in_channels=width),
)
