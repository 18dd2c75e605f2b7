"""benchmarks/whole_jobs.py: the same job in three ways, and what its table says."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'benchmarks'))
from parts.whole_job_configs import (  # noqa: E402
    BARE,
    OURS,
    PEER,
    write_config,
    write_detection_config,
)

module = runpy.run_path(str(REPO / 'benchmarks' / 'whole_jobs.py'))


@pytest.fixture(scope='module', params=['segmentation', 'detection'])
def configs(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp('jobs')
    write = write_detection_config if request.param == 'detection' else write_config
    for part in ('images/train', 'images/val', 'annotations/train', 'annotations/val'):
        (folder / part).mkdir(parents=True)
        (folder / part / 'a.png').touch()
    return {
        arm: Config.fromfile(write(arm, folder / f'{i}.py', folder, 64, 8))
        for i, arm in enumerate((OURS, BARE, PEER))
    }


def test_the_ways_do_the_same_work(configs):
    """Data, augmentation, optimizer, losses and widths are the same; what differs is ours."""
    ours, bare, peer = (configs[arm] for arm in (OURS, BARE, PEER))
    assert ours.model == bare.model
    for other in (bare, peer):
        for loader in ('train_dataloader', 'test_dataloader'):
            assert other[loader].dataset == ours[loader].dataset
            assert other[loader].batch_size == ours[loader].batch_size
        assert other.optim_wrapper == ours.optim_wrapper
        assert other.train_cfg == ours.train_cfg
        assert other.test_evaluator[0] == ours.test_evaluator[0]
        assert other.custom_hooks == []
        assert other.default_hooks.checkpoint.type == 'CheckpointHook'
        assert other.train_dataloader.sampler.type == 'InfiniteSampler'
    assert ours.custom_hooks
    assert ours.train_dataloader.sampler.type == 'ReplayInfiniteSampler'
    assert ours.model.backbone.type != peer.model.backbone.type
    heads = [name for name in ours.model if name.endswith('_head')]
    for head in heads:
        mine, theirs = dict(ours.model[head]), dict(peer.model[head])
        assert mine.pop('type').removeprefix('Fast') == theirs.pop('type')
        assert mine == theirs
    if 'decode_head' in heads:
        assert 'cb_mm' not in peer.custom_imports.imports


def test_steps_are_read_from_the_log():
    log = (
        'Iter(train) [1/8]  lr: 1e-5  eta: 0:00:10  time: 2.5000  data_time: 0.1  loss: 3.0\n'
        'Iter(train) [2/8]  lr: 1e-5  eta: 0:00:10  time: 1.2500  data_time: 0.1  loss: 3.0\n'
    )
    assert module['step_times'](log, Path(), 'train') == [2.5, 1.25]


def test_the_table_compares_medians():
    records = [
        dict(arm=arm, job=job, workers=0, step_s=step, steps=8, wall_s=step * 8 + 5, cpu_s=step * 8)
        for arm, step in ((OURS, 1.0), (OURS, 9.0), (OURS, 1.0), (BARE, 1.0), (PEER, 2.0))
        for job in ('train', 'test')
    ]
    lines = module['report'](records, argparse.Namespace()).splitlines()
    row = next(line for line in lines if line.startswith(f'| train | 0 | {OURS} |'))
    assert [cell.strip() for cell in row.split('|')[4:6]] == ['2.00', '0.50']
    assert row.split('|')[-2].strip() == '0.50'
