"""SIGTERM, SIGUSR1, SIGHUP and Ctrl-C: what is finished is reported, and the run can be resumed."""

from __future__ import annotations

import json
import signal

import pytest
from forked import Forked, run
from robustness_models import records, scores
from signal_hooks import SignalAtDraft, SignalAtImage

pytestmark = pytest.mark.slow  # each test starts a tool or two
PLAN = ('--corruption', 'gaussian_noise=10', '--repeats', 3, '--cfg-options',
        'test_dataloader.num_workers=1')  # fmt: skip

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP]


@pytest.mark.parametrize('number', SIGNALS, ids=lambda number: number.name)
def test_a_sweep_reports_what_is_finished_and_resumes(seg, number, tmp_path):
    out = tmp_path / 'out'
    words = seg.words(*PLAN, '--out', out)
    at = SignalAtDraft(number, 'gaussian_noise=10_0.csv')
    done = Forked('test.py', *words, cwd=tmp_path, before=at).wait()
    assert done.code == 128 + number, done.err
    assert done.err.count(f'stopped by {number.name}: finished passes are kept') == 1
    assert 'Traceback' not in done.err
    kept = list(records(out))
    assert kept == ['clean', 'gaussian_noise=10_0'], 'the pass that was being written is whole'
    results = json.loads((out / 'results.json').read_text())
    assert [cell['key'] for cell in results['cells']] == ['clean', 'gaussian_noise=10']
    assert {'results.md', 'results.csv', 'robustness.png'} < {f.name for f in out.iterdir()}
    if number == signal.SIGTERM:
        again = run('test.py', *words, cwd=tmp_path)
        assert again.code == 0, again.err
        assert '2 of 4 passes, by an earlier run; resuming' in again.out
        assert run('test.py', *words[:-1], tmp_path / 'whole', cwd=tmp_path).code == 0
        assert scores(out) == scores(tmp_path / 'whole')


@pytest.mark.parametrize('number', SIGNALS, ids=lambda number: number.name)
def test_attention_is_summed_up_and_resumed(seg, number, tmp_path):
    out = tmp_path / 'out'
    images = seg.data / 'images' / 'validation'
    words = (seg.config, seg.checkpoint, images, '--format', 'png', '--out', out)
    done = Forked('analyze_attention.py', *words, cwd=tmp_path, before=SignalAtImage(number)).wait()
    assert done.code == 128 + number, done.err
    assert f'stopped by {number.name}: what was measured is in {out}' in done.err
    assert 'Traceback' not in done.err
    assert json.loads((out / 'summary.json').read_text())['models'][0]['images'] == 2
    if number == signal.SIGTERM:
        for more, count in (('--limit', 3), 3), ((), 4):
            again = run('analyze_attention.py', *words, *more, cwd=tmp_path)
            assert again.code == 0, again.err
            assert json.loads((out / 'summary.json').read_text())['models'][0]['images'] == count
