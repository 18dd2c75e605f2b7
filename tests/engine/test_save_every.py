"""Checkpoints by the clock: times as people write them, one file, an exact resume after a kill."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from forked import run
from mmengine.hooks import CheckpointHook
from run_files import assert_same
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, main_of, write_config

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.engine.hooks.checkpoint import checkpoints_in
from cb_mm.engine.hooks.save_every import SaveEveryHook, duration
from cb_mm.errors import UserError


@pytest.mark.parametrize(
    ('text', 'seconds'),
    [('90s', 90), ('30min', 1800), ('2h', 7200), ('1h30min', 5400), ('1.5h', 5400), ('45', 45),
     (' 2 H ', 7200), ('1d', 86400), ('5m', 300), (0.5, 0.5)],
)  # fmt: skip
def test_times(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    'text', ['', 'soon', '-5min', '30 minutes', '0', '0s', '1h-2min', 'inf', 'nan']
)
def test_no_times(text):
    with pytest.raises(UserError, match='save_every'):
        duration(text)


def test_a_tool_refuses_it_before_anything_is_built(tmp_path, capsys):
    config = write_config(tmp_path, SMALL_UPERNET)
    assert main_of('train.py')([str(config), '--save-every', 'often']) == 2
    assert '--save-every often: it is not a time such as 90s, 30min' in capsys.readouterr().err


def test_in_a_config_of_a_host_it_needs_the_hook_that_saves():
    """mmengine's own CheckpointHook cannot save in between."""
    runner = SimpleNamespace(hooks=[CheckpointHook()])
    with pytest.raises(UserError, match='SaveEveryHook saves through a SafeCheckpointHook'):
        SaveEveryHook('30min').before_train(runner)


def test_the_newer_of_two_that_a_kill_left_is_resumed(tmp_path):
    for name, when in (('stopped.pth', 2), ('timed.pth', 1), ('iter_9.pth', 3)):
        file = tmp_path / name
        file.touch()
        os.utime(file, (when, when))
    assert [file.name for file in checkpoints_in(tmp_path)] == [
        'stopped.pth', 'timed.pth', 'iter_9.pth',
    ]  # fmt: skip


RUN = """
_base_ = ['base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [dict(type='SignalAt'), dict(type='ReplayHook'), dict(type='MeanLossHook')]
train_dataloader = dict(num_workers=0, persistent_workers=False, batch_size=2)
"""
MORE = {
    'seg': """
train_cfg = dict(max_iters=4, val_interval=9)
default_hooks = dict(checkpoint=dict(interval=4))
""",
    'det': 'train_cfg = dict(max_epochs=1, val_interval=9)',
}


@pytest.mark.slow
@pytest.mark.parametrize('task', ['seg', 'det'])
def test_kill_9_after_a_timed_checkpoint_costs_no_iteration_before_it(task, scenes, tmp_path):
    """Within an epoch too; the next periodic checkpoint replaces the timed one."""
    seg = task == 'seg'
    data, last = (scenes.ade20k, 'iter_4.pth') if seg else (scenes.coco, 'epoch_1.pth')
    write_config(tmp_path, SMALL_UPERNET if seg else SMALL_MASK_RCNN, 'base.py')
    config = write_config(tmp_path, RUN + MORE[task])
    words = (config, '--data-root', data, '--save-every', '0.001s')
    killed = run('train.py', *words, '--work-dir', tmp_path / 'a', '--cfg-options',
                 'custom_hooks.0.iteration=3', 'custom_hooks.0.name=SIGKILL',
                 cwd=tmp_path)  # fmt: skip
    assert killed.code == -9
    assert [file.name for file in (tmp_path / 'a').glob('*.pth')] == ['timed.pth']
    assert read_checkpoint(tmp_path / 'a' / 'timed.pth')['meta']['iter'] == 2
    done = run('train.py', *words, '--work-dir', tmp_path / 'a', '--resume', cwd=tmp_path)
    assert done.code == 0, done.err
    assert 'timed.pth at iteration 2' in done.out
    assert run('train.py', *words, '--work-dir', tmp_path / 'b', cwd=tmp_path).code == 0
    a, b = (read_checkpoint(tmp_path / name / last) for name in 'ab')
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)
    assert [file.name for file in (tmp_path / 'a').glob('*.pth')] == [last]
