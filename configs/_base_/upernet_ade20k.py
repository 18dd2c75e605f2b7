"""UperNet on ADE20K: what all its configs share but the backbone."""

_base_ = [
    'models/upernet_vit.py',
    'datasets/ade20k.py',
    'schedules/ade20k.py',
]
