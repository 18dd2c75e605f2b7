"""The procedural scenes as a data set: 16 classes, every pixel labelled."""

from __future__ import annotations

from .segmentation_data import Source

SCENES = Source(
    dataset=dict(type='ADE20KDataset', data_root='scenes/ade20k'),
    classes=(
        *('building', 'sky', 'tree', 'road', 'grass', 'sidewalk', 'person', 'mountain'),
        *('car', 'water', 'fence', 'signboard', 'boat', 'bus', 'streetlight', 'animal'),
    ),
    train='training',
    val='validation',
    loading=dict(reduce_zero_label=True),
    crop=dict(cat_max_ratio=0.75),
)
