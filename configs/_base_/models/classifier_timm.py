"""A timm model with a linear layer on what it classifies from, trained like DeiT."""

_base_ = ['classifier_vit.py']

model = dict(backbone=dict(_delete_=True, type='TimmCB', out_type='cls', drop_path_rate=0.1))
