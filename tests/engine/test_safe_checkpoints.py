"""Kills, torn writes and full disks: always a whole checkpoint, always the same end."""

from __future__ import annotations

import os
from pathlib import Path

import forked
import pytest
import torch
from mmengine.config import Config
from tool import CONFIGS

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.engine.hooks.checkpoint import checkpoints_in, use_safe_checkpoints

JOB = Path(__file__).parents[1].joinpath('checkpoint_job.py')


def end_of(work: Path) -> dict:
    """Everything of a finished run that must not depend on what happened on the way."""
    found: dict = {}
    for file in sorted(work.iterdir()):
        if file.suffix == '.pth':
            content = read_checkpoint(file)
            parts = ('state_dict', 'optimizer', 'param_schedulers')
            info = content['message_hub']['runtime_info']
            found[file.name] = [
                *(plain(content.get(part)) for part in parts),
                content['meta']['iter'],
                *(info.get(key) for key in ('best_score', 'keep_ckpt_ids')),
            ]
        elif file.name == 'last_checkpoint' or file.name.startswith('.'):
            found[file.name] = file.read_text().replace(str(work), '')
    return found


def plain(value):
    """Tensors as lists, so that == compares every bit."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    work, log = folder / 'work', folder / 'events'
    done = forked.run(str(JOB), work, cwd=folder, before=forked.KillAtEvent(work, 0, log))
    assert done.code == 0, done.err
    end = end_of(work)
    assert [name for name in end if name.startswith('iter')] == ['iter_6.pth']
    assert len(end) == 3, end.keys()  # the last, the best, and the name of the last
    return end, log.read_text().splitlines()


def resume(work: Path) -> dict:
    done = forked.run(str(JOB), work, 'resume', cwd=work.parent)
    assert done.code == 0, done.err
    return end_of(work)


def test_the_old_goes_after_the_new_is_there(undisturbed):
    events = undisturbed[1]
    for number in (2, 4):
        removed = events.index(f'os.remove iter_{number}.pth')
        newer = [e for e in events[:removed] if f'rename .iter_{number + 2}.pth' in e]
        assert newer, events


@pytest.mark.parametrize('share', range(12))
def test_killed_at_any_file_operation(undisturbed, share, tmp_path):
    """Twelve moments, spread over all file operations of a run (benchmarks/faults.py has all)."""
    end, events = undisturbed
    number = 1 + share * (len(events) - 1) // 11
    work = tmp_path / 'work'
    killed = forked.run(str(JOB), work, cwd=tmp_path, before=forked.KillAtEvent(work, number))
    assert killed.code == -9
    for file in work.glob('*.pth'):
        read_checkpoint(file)
    assert resume(work) == end


@pytest.mark.parametrize('number', [1, 4, 7])
def test_killed_within_a_write(undisturbed, number, tmp_path):
    work = tmp_path / 'work'
    torn = forked.KillWhileWriting(number, 0.5)
    assert forked.run(str(JOB), work, cwd=tmp_path, before=torn).code == -9
    assert list(work.glob('.*.part'))
    for file in work.glob('*.pth'):
        read_checkpoint(file)
    assert resume(work) == undisturbed[0]


@pytest.mark.parametrize('number', [1, 5, 8])
def test_full_disk(undisturbed, number, tmp_path):
    work = tmp_path / 'work'
    done = forked.run(str(JOB), work, cwd=tmp_path, before=forked.FillDiskAt(number))
    assert done.code == 2
    assert 'cannot write' in done.err
    assert 'Traceback' not in done.err
    whole = checkpoints_in(work)
    assert bool(whole) == (number > 1)
    for file in whole:
        read_checkpoint(file)
        assert str(file) in done.err  # named as the one to resume from
    assert not list(work.glob('.*.part'))
    assert resume(work) == undisturbed[0]


def hostile(work: Path, info: dict) -> None:
    """Let the last checkpoint of a run say something else about files."""
    file = work / 'iter_6.pth'
    content = read_checkpoint(file)
    content['message_hub']['runtime_info'].update(info)
    content['message_hub']['resumed_keys'].update(dict.fromkeys(info, True))
    content['meta']['iter'] = 4  # there is something left to do
    torch.save(content, work / 'iter_4.pth')
    file.unlink()
    (work / 'last_checkpoint').write_text(str(work / 'iter_4.pth'))


def test_a_checkpoint_removes_no_file_but_its_own(undisturbed, tmp_path):
    """Whatever a file says is outdated, or was the best: only checkpoints of this folder go."""
    work = tmp_path / 'work'
    done = forked.run(str(JOB), work, cwd=tmp_path)
    assert done.code == 0, done.err
    other = tmp_path / 'other'
    kept = [
        tmp_path / 'thesis.tex', other / 'iter_2.pth', other / 'best_score_iter_2.pth',
        work / 'notes.txt', work / 'deep' / 'iter_2.pth', work / 'iter_2.pth.txt',
        work / 'my_iter_2.pth', tmp_path / '7.pth',
    ]  # fmt: skip
    for file in kept:
        file.parent.mkdir(exist_ok=True)
        file.write_text('mine')
    (work / 'iter_2.pth').write_text('outdated')  # this one the run may remove
    paths = [str(file) for file in kept]
    hostile(work, {
        'outdated_checkpoints': [*paths, 'deep/iter_2.pth', 5, None, str(work / 'iter_2.pth')],
        'best_ckpt': str(kept[0]),
        'last_ckpt': str(kept[1]),
        'keep_ckpt_ids': ['../../7', '/etc/7', -1, True, 2.5, [1]],
        'best_score': -1.0,
    })  # fmt: skip
    done = forked.run(str(JOB), work, 'resume', cwd=tmp_path)
    assert done.code == 0, done.err
    assert [file for file in kept if not file.exists()] == []
    assert not (work / 'iter_2.pth').exists()
    assert read_checkpoint(work / 'iter_6.pth')['meta']['iter'] == 6


@pytest.mark.parametrize(
    'info',
    [
        {'best_ckpt': 5, 'last_ckpt': [1], 'outdated_checkpoints': 'iter_6.pth'},
        {'best_score': 'high', 'keep_ckpt_ids': 'abc', 'outdated_checkpoints': {'a': 1}},
        {'best_ckpt': '/elsewhere/best_score_iter_2.pth', 'best_score': -1.0},
    ],
)
def test_odd_words_about_files(info, undisturbed, tmp_path):
    work = tmp_path / 'work'
    assert forked.run(str(JOB), work, cwd=tmp_path).code == 0
    hostile(work, info)
    assert 'iter_6.pth' in resume(work)


def test_mmseg_itself_uses_it_with_shipped_configs():
    for file in CONFIGS.glob('*.py'):
        assert Config.fromfile(file).default_hooks.checkpoint.type == 'SafeCheckpointHook', file


@pytest.mark.parametrize(
    'content',
    [
        {},
        {'default_hooks': None},
        {'default_hooks': {'logger': {}}},
        {'default_hooks': {'checkpoint': {'interval': 3}}},
        {'default_hooks': {'checkpoint': {'type': 'CheckpointHook', 'interval': 3}}},
        {'default_hooks': {'checkpoint': {'type': 'mmengine.CheckpointHook'}}},
    ],
)
def test_any_config_gets_it(content):
    config = Config(content)
    use_safe_checkpoints(config)
    assert config.default_hooks.checkpoint.type == 'SafeCheckpointHook'


def test_what_the_user_chose_stays():
    config = Config({
        'default_hooks': {'checkpoint': None},
        'custom_hooks': [{'type': 'CheckpointHook', 'interval': 7}, {'type': 'Mine'}],
    })  # fmt: skip
    use_safe_checkpoints(config)
    assert config.default_hooks.checkpoint is None
    assert [hook.type for hook in config.custom_hooks] == ['SafeCheckpointHook', 'Mine']


def test_other_files_of_mmengine_are_whole_or_absent(tmp_path):
    from mmengine.fileio import dump, load, put_text

    put_text('a', str(tmp_path / 'x.txt'))
    dump({'a': 1}, tmp_path / 'x.json')
    assert load(tmp_path / 'x.json') == {'a': 1}
    assert sorted(os.listdir(tmp_path)) == ['x.json', 'x.txt']
