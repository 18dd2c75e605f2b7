"""Colours of classes: those of the data set that a config names."""

from __future__ import annotations

from mmengine.config import Config
from mmseg.datasets import ADE20KDataset

from cb_mm.prediction.colours import ClassStyle


def test_a_stock_data_set_lends_its_palette():
    """Its name is known in the scope of the config alone."""
    loader = dict(dataset=dict(type='ADE20KDataset', data_root='nowhere'))
    config = Config(dict(default_scope='mmseg', test_dataloader=loader))
    names = ADE20KDataset.METAINFO['classes']
    found = ClassStyle.of_config(config, names[:3]).colours()
    assert found.tolist() == ADE20KDataset.METAINFO['palette'][:3]
