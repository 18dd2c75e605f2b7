"""benchmarks/coco_check.py: what it changes in the recipe, what it reads from the log."""

from __future__ import annotations

import runpy
import sys

import pytest
from mmengine.config import Config
from tool import CONFIGS, REPO

sys.path.insert(0, str(REPO / 'benchmarks'))
module = runpy.run_path(str(REPO / 'benchmarks' / 'coco_check.py'))


@pytest.mark.parametrize('name', ['mask_rcnn_vit_ti', 'mask_rcnn_vit_ti_cb'])
def test_the_recipe_is_changed_in_size_and_length_alone(name, tmp_path):
    module['write_config'](tmp_path / 'config.py', name, 3)
    small, recipe = (Config.fromfile(file) for file in (tmp_path / 'config.py',
                                                        CONFIGS / f'{name}.py'))  # fmt: skip
    assert small.model == recipe.model
    assert small.optim_wrapper == recipe.optim_wrapper
    assert small.train_cfg.max_epochs == small.param_scheduler[1].end == 3
    for loader in (small.train_dataloader, small.val_dataloader, small.test_dataloader):
        (resize,) = (step for step in loader.dataset.pipeline if 'Resize' in step.type)
        assert resize.scale == (533, 320)
        assert loader.num_workers == 0


def test_loss_at_both_ends_and_scores_of_the_end():
    lines = [{'step': step, 'loss': float(100 - step)} for step in range(60)]
    lines.insert(30, {'step': 1, 'coco/bbox_mAP_50': 0.1, 'coco/segm_mAP_50': 0.1})
    lines.append({'step': 2, 'coco/bbox_mAP_50': 0.3, 'coco/segm_mAP_50': 0.2})
    lines.append({'step': 59, 'loss': 41.0})  # the same iteration again, after a kill
    found = module['summary'](lines)
    assert found == {'iterations': 60, 'loss': [90.5, 50.5], 'AP50': {'box': 0.3, 'mask': 0.2}}


def test_what_is_missing_is_named(tmp_path, capsys):
    assert module['main'](['--coco', str(tmp_path), '--out', str(tmp_path)]) == 2
    assert 'instances_train2017.json' in capsys.readouterr().err
