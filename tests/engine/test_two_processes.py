"""A signal to one of two processes: both stop, and resumed they end as if nothing had happened."""

from __future__ import annotations

import signal

import pytest
from forked import run_ranks
from robustness_models import records, scores
from run_files import assert_same, logged
from signal_hooks import SignalAtDraft
from tool import SMALL_UPERNET, main_of, write_config

from cb_mm.checkpoints.read import read_checkpoint

SIGNALLED = """
_base_ = ['base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [dict(type='SignalAt', rank=1), dict(type='ReplayHook'), dict(type='MeanLossHook')]
val_dataloader = dict(num_workers=0, persistent_workers=False)
"""


@pytest.mark.slow
def test_a_training_that_is_resumed_is_bit_equal(scenes, tmp_path):
    """Stopped in the middle of the third of six iterations, in two processes; then in two again."""
    write_config(tmp_path, SMALL_UPERNET, 'base.py')
    config = write_config(tmp_path, SIGNALLED)

    def train(work: str, *words: object) -> list:
        words = ('--data-root', scenes.ade20k, '--work-dir', tmp_path / work, *words)
        return run_ranks('train.py', config, *words, cwd=tmp_path)

    ends = train('whole')
    assert [end.code for end in ends] == [0, 0], ends
    ends = train('cut', '--cfg-options', 'custom_hooks.0.iteration=3')
    assert [end.code for end in ends] == [143, 143], ends
    assert read_checkpoint(tmp_path / 'cut' / 'stopped.pth')['meta']['iter'] == 3
    ends = train('cut', '--resume')
    assert [end.code for end in ends] == [0, 0], ends
    whole, cut = (read_checkpoint(tmp_path / name / 'iter_6.pth') for name in ('whole', 'cut'))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(whole[part], cut[part], part)
    assert logged(tmp_path / 'cut') == logged(tmp_path / 'whole')


@pytest.mark.slow
def test_a_sweep_reports_what_is_finished_and_resumes(seg, tmp_path):
    plan = ('--corruption', 'gaussian_noise=10', '--repeats', 3, '--limit', 2)
    out = tmp_path / 'out'
    at = SignalAtDraft(signal.SIGTERM, 'gaussian_noise=10_0.csv')  # which the first one writes
    ends = run_ranks('test.py', *seg.words(*plan, '--out', out), cwd=tmp_path, before=at)
    assert [end.code for end in ends] == [143, 143], ends
    said = ''.join(end.err for end in ends)
    assert said.count('stopped by SIGTERM: finished passes are kept') == 1
    assert 'Traceback' not in said
    assert list(records(out)) == ['clean', 'gaussian_noise=10_0']
    assert (out / 'results.md').is_file()
    ends = run_ranks('test.py', *seg.words(*plan, '--out', out), cwd=tmp_path)
    assert [end.code for end in ends] == [0, 0], ends
    assert '2 of 4 passes, by an earlier run; resuming' in ends[0].out
    assert main_of('test.py')(seg.words(*plan, '--out', tmp_path / 'whole')) == 0
    assert scores(out) == scores(tmp_path / 'whole')
