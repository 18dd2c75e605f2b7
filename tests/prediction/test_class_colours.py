"""Colours of classes: those of the data set that a config names."""

from __future__ import annotations

import numpy as np
from mmengine.config import Config
from mmseg.datasets import ADE20KDataset, BaseSegDataset

from cb_mm.prediction.colours import ClassStyle


def test_a_stock_data_set_lends_its_palette():
    """Its name is known in the scope of the config alone."""
    loader = dict(dataset=dict(type='ADE20KDataset', data_root='nowhere'))
    config = Config(dict(default_scope='mmseg', test_dataloader=loader))
    names = ADE20KDataset.METAINFO['classes']
    found = ClassStyle.of_config(config, names[:3]).colours()
    assert found.tolist() == ADE20KDataset.METAINFO['palette'][:3]


def test_colours_that_mmseg_made_up_are_not_those_of_the_data(tmp_path):
    """A report, which knows the data set, and a prediction, which does not, look alike."""
    names = ('background', 'disc', 'bar')
    for given in (None, [[1, 2, 3], [4, 5, 6], [7, 8, 9]]):
        meta = {'classes': names} if given is None else {'classes': names, 'palette': given}
        dataset = BaseSegDataset(
            data_prefix={'img_path': str(tmp_path)}, metainfo=meta, lazy_init=True
        )
        assert len(dataset.metainfo['palette']) == 3
        expected = ClassStyle(names, given).colours()
        assert np.array_equal(ClassStyle.of_meta(dataset.metainfo).colours(), expected)
