"""Training that a signal ends: one checkpoint, one line, and a resumed run that equals a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from forked import Done, run, run_ranks
from run_files import assert_same
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, main_of, write_config

from cb_mm.checkpoints.read import read_checkpoint

SIGNALLED = """
_base_ = ['base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [
    dict(type='SignalAt'),
    dict(type='ReplayHook'),
    dict(type='MeanLossHook'),
    dict(type='EMAHook', momentum=0.3),
]
train_dataloader = dict(num_workers=2)
"""


def signalled(folder: Path, base: str, more: str = '') -> Path:
    """A small recipe with `SignalAt`, an average of the weights and processes that load data."""
    folder.mkdir(exist_ok=True)
    write_config(folder, base, 'base.py')
    return write_config(folder, SIGNALLED + more)


def train(config: Path, data: Path, *words: object, **signal: object) -> Done:
    """Run the tool; the other words are those of `SignalAt`."""
    options = [f'custom_hooks.0.{key}={value}' for key, value in signal.items()]
    return run('train.py', config, '--data-root', data, *words, '--work-dir', config.parent / 'w',
               *(['--cfg-options', *options] if options else []), cwd=config.parent)  # fmt: skip


def assert_stopped(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done.err + done.out
    assert len(done.err.splitlines()) == 1, done.err
    for word in (*words, '--resume'):
        assert word in done.err


def checkpoints(config: Path) -> list[str]:
    return sorted(file.name for file in (config.parent / 'w').glob('*.pth'))


def assert_equal_ends(a: Path, b: Path, name: str) -> None:
    a, b = (read_checkpoint(config.parent / 'w' / name) for config in (a, b))
    for part in ('state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)
    assert a['meta']['iter'] == b['meta']['iter']


@pytest.fixture(scope='module')
def whole(tmp_path_factory, scenes) -> Path:
    """The config of a run that nothing disturbed."""
    config = signalled(tmp_path_factory.mktemp('whole'), SMALL_UPERNET)
    done = train(config, scenes.ade20k)
    assert done.code == 0, done.err
    return config


@pytest.mark.slow
def test_pre_empted_twice_and_in_a_validation_equals_undisturbed(whole, scenes, tmp_path):
    config = signalled(tmp_path, SMALL_UPERNET)
    # Every process of the job gets it, as from a scheduler, and once more while it saves.
    done = train(config, scenes.ade20k, iteration=1, group=True, twice=True)
    assert_stopped(done, 143, 'SIGTERM', 'iteration 1 of 6', str(tmp_path / 'w' / 'stopped.pth'))
    assert checkpoints(config) == ['stopped.pth']
    assert read_checkpoint(tmp_path / 'w' / 'stopped.pth')['meta']['iter'] == 1

    done = train(config, scenes.ade20k)
    assert done.code == 2
    assert 'stopped.pth' in done.err

    done = train(config, scenes.ade20k, '--resume', iteration=5, name='SIGUSR1')
    assert_stopped(done, 138, 'SIGUSR1', 'iteration 5 of 6')
    assert 'stopped.pth at iteration 1' in done.out
    assert checkpoints(config) == ['iter_2.pth', 'iter_4.pth', 'stopped.pth']
    assert (tmp_path / 'w' / 'last_checkpoint').read_text().endswith('stopped.pth')

    done = train(config, scenes.ade20k, '--resume', iteration=6, name='SIGINT', validation=True)
    assert_stopped(done, 130, 'SIGINT', 'iteration 6 of 6', 'iter_6.pth')  # which was just written
    assert 'mIoU' not in done.out
    assert checkpoints(config) == ['iter_2.pth', 'iter_4.pth', 'iter_6.pth']

    done = train(config, scenes.ade20k, '--resume')
    assert done.code == 0, done.err
    assert 'mIoU' in done.out
    assert_equal_ends(whole, config, 'iter_6.pth')


def test_a_validation_that_is_stopped_saves_the_weights_that_train(whole, scenes, tmp_path):
    """Not the averaged ones that are being validated, when no checkpoint was due."""
    config = signalled(tmp_path, SMALL_UPERNET, 'train_cfg = dict(val_interval=3)')
    done = train(config, scenes.ade20k, iteration=3, validation=True)
    assert_stopped(done, 143, 'iteration 3 of 6', 'stopped.pth')
    done = train(config, scenes.ade20k, '--resume')
    assert done.code == 0, done.err
    assert done.out.count('mIoU:') == 2
    assert_equal_ends(whole, config, 'iter_6.pth')


def test_accumulated_gradients_are_used_first(scenes, tmp_path):
    config = signalled(tmp_path, SMALL_UPERNET, 'optim_wrapper = dict(accumulative_counts=3)')
    assert_stopped(train(config, scenes.ade20k, iteration=1), 143, 'iteration 3 of 6')


@pytest.mark.slow
def test_an_epoch_is_resumed_in_its_middle(scenes, tmp_path):
    """With batches that mmdet sorts by shape; once after the last batch of an epoch."""
    more = 'train_dataloader = dict(num_workers=2, batch_size=2)'
    whole, stopped = (signalled(tmp_path / name, SMALL_MASK_RCNN, more) for name in ('a', 'b'))
    assert train(whole, scenes.coco).code == 0
    assert_stopped(train(stopped, scenes.coco, iteration=3), 143, 'iteration 3 of 8')
    done = train(stopped, scenes.coco, '--resume', iteration=4)
    assert_stopped(done, 143, 'iteration 4 of 8')
    assert '[1][4/4]' in done.out
    assert checkpoints(stopped) == ['stopped.pth']
    done = train(stopped, scenes.coco, '--resume')
    assert done.code == 0, done.err
    assert '[2][1/4]' in done.out
    assert checkpoints(stopped) == checkpoints(whole) == ['epoch_1.pth', 'epoch_2.pth']
    for name in ('epoch_1.pth', 'epoch_2.pth'):
        assert_equal_ends(whole, stopped, name)


def test_ctrl_c_before_training_is_one_line(tmp_path, capsys):
    """While anything is built or read: here, the config itself."""
    # The original mmengine does not read a config that imports this module.
    file = write_config(tmp_path, "__import__('signal').raise_signal(2)\n")
    assert main_of('train.py')([str(file), '--work-dir', str(tmp_path / 'w')]) == 130
    assert capsys.readouterr().err == 'stopped before training began; nothing was saved.\n'


@pytest.mark.slow
@pytest.mark.parametrize('validation', [False, True])
def test_a_signal_to_one_process_stops_both_at_the_same_iteration(scenes, tmp_path, validation):
    config = signalled(tmp_path, SMALL_UPERNET, 'train_cfg = dict(val_interval=3)')
    words = (config, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'w', '--cfg-options',
             'custom_hooks.0.iteration=3', 'custom_hooks.0.rank=1',
             f'custom_hooks.0.validation={validation}')  # fmt: skip
    first, second = run_ranks('train.py', *words, cwd=tmp_path)
    assert (first.code, second.code) == (143, 143), first.err + second.err
    assert 'SIGTERM after iteration 3 of 6' in first.err
    assert 'stopped by' not in second.err
    assert read_checkpoint(tmp_path / 'w' / 'stopped.pth')['meta']['iter'] == 3
    weights = read_checkpoint(tmp_path / 'w' / 'stopped.pth')['state_dict'].values()
    assert all(bool(torch.isfinite(w).all()) for w in weights if w.is_floating_point())
