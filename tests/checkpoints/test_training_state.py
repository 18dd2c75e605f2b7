"""Resuming from checkpoints whose state is not of this run: one line, before the first step."""

from __future__ import annotations

import pytest
import torch
from checkpoint_job import Data, Net
from mmengine.runner import Runner

from cb_mm.checkpoints.read import read_checkpoint
from cb_mm.checkpoints.training_state import require_resumable
from cb_mm.engine.hooks import CheckpointMatchHook, StartReportHook, StopOnSignalHook
from cb_mm.engine.resume import last_whole_checkpoint
from cb_mm.errors import UserError


def run(
    work_dir, name: str, iterations: int, load_from: str | None = None, resume=True, end=6
) -> None:
    Runner(
        Net(),
        work_dir=str(work_dir),
        train_dataloader=dict(
            dataset=Data(),
            batch_size=4,
            sampler=dict(type='InfiniteSampler', shuffle=False),
            collate_fn=dict(type='default_collate'),
        ),
        train_cfg=dict(by_epoch=False, max_iters=iterations),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=[dict(type='PolyLR', by_epoch=False, begin=0, end=end)],
        default_hooks=dict(
            checkpoint=dict(type='SafeCheckpointHook', by_epoch=False, interval=2)
        ),
        custom_hooks=[CheckpointMatchHook(), StartReportHook(), StopOnSignalHook()],
        resume=resume and load_from is not None,
        load_from=load_from,
        log_level='ERROR',
        experiment_name=name,
    ).train()  # fmt: skip


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp('trained')
    run(folder, 'trained', 2)
    return folder / 'iter_2.pth'


def other_moments(content: dict) -> None:
    content['optimizer']['state'][0]['exp_avg'] = torch.zeros(7, 7)


def number_as_moment(content: dict) -> None:
    content['optimizer']['state'][0]['exp_avg_sq'] = 'zero'


def other_parameters(content: dict) -> None:
    content['optimizer']['param_groups'][0]['params'].append(2)


def other_groups(content: dict) -> None:
    content['optimizer']['param_groups'] *= 2


def no_groups(content: dict) -> None:
    content['optimizer'] = {'state': {}, 'param_groups': 5}


def rate_of_text(content: dict) -> None:
    content['optimizer']['param_groups'][0]['lr'] = 'fast'


def betas_of_one(content: dict) -> None:
    content['optimizer']['param_groups'][0]['betas'] = (0.9,)


def two_schedules(content: dict) -> None:
    content['param_schedulers'] *= 2


def no_schedule(content: dict) -> None:
    content['param_schedulers'] = []


def other_schedule(content: dict) -> None:
    state = content['param_schedulers'][0]
    del state['power'], state['eta_min']
    state['factor'] = 0.5


def second_moment_missing(content: dict) -> None:
    del content['optimizer']['state'][0]['exp_avg_sq']


def steps_of_four(content: dict) -> None:
    content['optimizer']['state'][0]['step'] = torch.ones(4)


def steps_below_zero(content: dict) -> None:
    content['optimizer']['state'][0]['step'] = -1


def flag_of_numbers(content: dict) -> None:
    content['optimizer']['param_groups'][0]['fused'] = torch.ones(3)


def no_decay(content: dict) -> None:
    del content['optimizer']['param_groups'][0]['weight_decay']


def end_of_text(content: dict) -> None:
    content['param_schedulers'][0]['end'] = 'late'


def schedule_of_another_setting(content: dict) -> None:
    content['param_schedulers'][0]['param_name'] = 'temperature'


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (second_moment_missing, 'its optimizer has no exp_avg_sq'),
        (steps_below_zero, 'the step of its optimizer is not a number'),
        (steps_of_four, 'the step of its optimizer is not a number'),
        (flag_of_numbers, 'fused of its optimizer'),
        (no_decay, 'weight_decay of its optimizer'),
        (end_of_text, 'the end of its schedule'),
        (schedule_of_another_setting, 'the param_name of its schedule'),
        (other_moments, r'exp_avg of its optimizer is \[7, 7\] for a parameter that is \[1, 4\]'),
        (number_as_moment, 'exp_avg_sq of its optimizer is str'),
        (other_parameters, '3 parameters in 1 groups, that of the config 2 in 1'),
        (other_groups, '4 parameters in 2 groups'),
        (no_groups, 'no parameters'),
        (rate_of_text, 'lr of its optimizer'),
        (betas_of_one, 'betas of its optimizer'),
        (two_schedules, r'its schedule .param_scheduler. has 2 parts, that of the config 1'),
        (no_schedule, r'its schedule .param_scheduler. has 0 parts, that of the config 1'),
        (other_schedule, r'its schedule .param_scheduler. is of other types'),
    ],
)
def test_other_optimizers(trained, change, message, tmp_path):
    content = read_checkpoint(trained)
    change(content)
    file = tmp_path / 'changed.pth'
    torch.save(content, file)
    with pytest.raises(UserError, match=rf'changed\.pth: .*{message}'):
        run(tmp_path / 'work', f'{change.__name__}', 4, str(file))


def test_its_own_optimizer(trained, tmp_path):
    run(tmp_path / 'work', 'own', 4, str(trained))
    assert read_checkpoint(tmp_path / 'work' / 'iter_4.pth')['meta']['iter'] == 4


@pytest.mark.parametrize(
    ('resume', 'end', 'lines'),
    [
        (True, 6, ["weights  the checkpoint's"]),
        (True, 9, ["weights  the checkpoint's", "kept     the checkpoint's end 6 (9 in the config)",
                   "(4 iterations; the lr follows the checkpoint's schedule)"]),
        (False, 9, ['weights  {trained}', '(own schedule, 4 iterations)']),
    ],
)  # fmt: skip
def test_the_report_says_what_comes_from_the_checkpoint(
    trained, resume, end, lines, tmp_path, capsys
):
    run(tmp_path / 'work', f'report {resume} {end}', 4, str(trained), resume, end)
    shown = capsys.readouterr().out
    for line in lines:
        assert line.format(trained=trained) in shown
    assert ('kept' in shown) == (resume and end == 9)


@pytest.mark.parametrize(
    ('part', 'value'),
    [
        ('meta', 5),
        ('meta', {'epoch': 0}),
        ('meta', {'epoch': 0, 'iter': 'two'}),
        ('meta', {'epoch': -1, 'iter': 2}),
        ('meta', {'epoch': 0, 'iter': 2, 'seed': 'x'}),
        ('state_dict', [1]),
        ('message_hub', []),
        ('message_hub', {'log_scalars': {}, 'runtime_info': {}}),
        ('message_hub', {'log_scalars': {}, 'runtime_info': {5: 1}, 'resumed_keys': {}}),
        ('optimizer', 'Adam'),
        ('param_schedulers', 5),
        ('param_schedulers', [5]),
        ('param_schedulers', [{'last_step': 2, 'optimizer': 5}]),
        ('param_schedulers', [{'last_step': 'x'}]),
        ('param_schedulers', [{'last_step': torch.ones(2)}]),
        ('param_schedulers', torch.ones(2)),
        ('message_hub', {'log_scalars': {}, 'runtime_info': {}, 'resumed_keys': {'iter': 5}}),
    ],
)
def test_states_of_no_run(trained, part, value, tmp_path, capsys):
    content = {**read_checkpoint(trained), part: value}
    with pytest.raises(UserError, match=rf'a\.pth: its {part} cannot be of a training run.*`init`'):
        require_resumable(content, 'a.pth')
    torch.save(content, tmp_path / 'iter_2.pth')
    assert last_whole_checkpoint(tmp_path) is None
    assert 'skipped: ' in capsys.readouterr().out


def test_weights_alone_are_no_run():
    with pytest.raises(UserError, match=r'not a checkpoint of a training run.*`init`'):
        require_resumable({'state_dict': {}}, 'a.pth')


def test_an_odd_note_of_a_validation_is_not_followed(trained, tmp_path):
    content = read_checkpoint(trained)
    content['message_hub']['runtime_info']['done_validation'] = torch.ones(2)
    content['message_hub']['resumed_keys']['done_validation'] = True
    torch.save(content, tmp_path / 'odd.pth')
    run(tmp_path / 'w', 'validation', 4, str(tmp_path / 'odd.pth'))
    info = read_checkpoint(tmp_path / 'w' / 'iter_4.pth')['message_hub']['runtime_info']
    assert 'done_validation' not in info


@pytest.mark.parametrize(
    'place', [5, 'ab', [1], [1, 0], [-1, 2], [3, 2], ['a', 'b'], torch.ones(2), {'a': 1, 'b': 2}]
)
def test_an_odd_place_in_the_epoch_is_not_followed(place, trained, tmp_path):
    content = read_checkpoint(trained)
    content['message_hub']['runtime_info']['place_in_epoch'] = place
    content['message_hub']['resumed_keys']['place_in_epoch'] = True
    torch.save(content, tmp_path / 'odd.pth')
    run(tmp_path / 'w', f'place {place}', 4, str(tmp_path / 'odd.pth'))
    assert read_checkpoint(tmp_path / 'w' / 'iter_4.pth')['meta']['iter'] == 4
