"""Another folder of the data set: data sets and metrics look there for their files."""

from __future__ import annotations

import pytest
from mmengine.config import Config

from cb_mm.config import set_data_root


@pytest.mark.parametrize('wrapped', [False, True])
def test_metrics_look_for_their_files_under_data_root(tmp_path, wrapped):
    """Also where one root begins like another, lies inside it, or the new one inside the old."""
    metrics = [
        dict(type='CocoMetric', ann_file='data/coco/annotations/a.json'),
        dict(type='CocoPanopticMetric', ann_file='data/coco/p.json', seg_prefix='data/coco/p/'),
        dict(type='CityScapesMetric', seg_prefix='data/gtFine/val', outfile_prefix='data/out'),
        dict(type='CocoMetric', ann_file='data/coco2/annotations/a.json', seg_prefix='other/p'),
    ]
    roots = dict(train='data', val='data/coco/', test='data/coco')
    config = Config(
        {f'{split}_dataloader': dict(dataset=dict(data_root=old)) for split, old in roots.items()}
        | dict(test_evaluator=dict(type='Evaluator', metrics=metrics) if wrapped else metrics)
    )
    new = tmp_path / 'data' / 'coco'
    new.mkdir(parents=True)
    set_data_root(config, new)
    found = config.test_evaluator['metrics'] if wrapped else config.test_evaluator
    assert [{k: v for k, v in one.items() if k != 'type'} for one in found] == [
        dict(ann_file=f'{new}/annotations/a.json'),
        dict(ann_file=f'{new}/p.json', seg_prefix=f'{new}/p'),
        dict(seg_prefix=f'{new}/gtFine/val', outfile_prefix='data/out'),
        dict(ann_file=f'{new}/coco2/annotations/a.json', seg_prefix='other/p'),
    ]
    assert config.train_dataloader.dataset.data_root == str(new)
