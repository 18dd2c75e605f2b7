"""tools/benchmark.py and what it is made of."""

from __future__ import annotations

import json
import time
from io import BytesIO

import matplotlib.image
import pytest
import torch
from forked import run
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config

from cb_mm.apis.benchmark_report import (
    Row,
    Times,
    bar_chart,
    count_multiplications,
    machine,
    peak_memory,
    ratio,
    table,
    time_in_turns,
)
from cb_mm.fileio.figures import figure_bytes


def test_turns_begin_with_every_job_and_skip_the_first():
    calls = []
    jobs = {name: (lambda name=name: calls.append(name)) for name in 'abc'}
    times = time_in_turns(jobs, repeats=3, warm_up=1)
    rounds = [''.join(calls[i : i + 3]) for i in range(0, 12, 3)]
    assert rounds == ['cab', 'abc', 'bca', 'cab']
    assert all(len(found.wall) == len(found.cpu) == 3 for found in times.values())


def test_the_wall_clock_and_the_processors_are_read_around_the_job_alone(monkeypatch):
    clocks = {'perf_counter': 100.0, 'process_time': 10.0}
    for clock in clocks:
        monkeypatch.setattr(time, clock, lambda clock=clock: clocks[clock])

    def job() -> None:  # half of its time it waits
        clocks['perf_counter'] += 2
        clocks['process_time'] += 1

    assert time_in_turns({'job': job}, repeats=2)['job'] == Times([2.0, 2.0], [1.0, 1.0])


def test_summary_and_ratio():
    times = Times(wall=[4.0, 1.0, 2.0, 3.0, 5.0], cpu=[2.0, 2.0, 2.0, 2.0, 8.0])
    found = times.summary()
    assert (found['lower_quartile_s'], found['median_s'], found['upper_quartile_s']) == (2, 3, 4)
    assert (found['fastest_s'], found['cpu_median_s'], found['turns']) == (1, 2, 5)
    half = Times(wall=[1.0] * 5, cpu=[1.0] * 5)
    assert ratio(half, times)['ratio'] == 0.5
    assert ratio(half, times, 'wall')['ratio'] == pytest.approx(1 / 3)
    assert Times([1.5], [1.0]).summary()['upper_quartile_s'] == 1.5


def test_multiplications_of_known_layers():
    layer, x = torch.nn.Linear(10, 20), torch.zeros(3, 10)
    assert count_multiplications(lambda: layer(x)) == 600
    q = torch.zeros(1, 2, 7, 8)
    attention = torch.nn.functional.scaled_dot_product_attention
    assert count_multiplications(lambda: attention(q, q, q)) == 2 * 2 * 7 * 7 * 8


def test_peak_memory_sees_what_is_gone_again():
    size = 64 * 2**20
    pieces = [torch.ones(2**18) for _ in range(100)]  # on the heap, and kept there when freed
    del pieces
    found = peak_memory(lambda: [torch.ones(2**18) for _ in range(64)])
    if found is None:
        pytest.skip('this system does not tell the peak')
    assert 0.9 * size < found < 1.5 * size


def test_machine_has_no_names_of_hosts_or_folders():
    import platform

    text = json.dumps(machine())
    assert 'torch' in text
    assert platform.node() not in text or not platform.node()
    assert '/home' not in text


def test_table_and_chart():
    times = Times(wall=[0.1, 0.2, 0.3], cpu=[0.1, 0.2, 0.3]).summary()
    half = Times(wall=[0.1] * 3, cpu=[0.1] * 3).summary()
    rows = [
        Row('first', 1_500_000, 2_000_000_000, 4, times, 3 * 2**20, None, times, None),
        Row('first, bf16', 1_500_000, 2_000_000_000, 4, half, None, 0.01, half, 2**20),
    ]
    lines = table(rows).splitlines()
    assert len({line.count('|') for line in lines}) == 1
    assert '| first | 1.50 | 2.0 | 200.0 (150.0 to 250.0) | 200.0 | 20.00 | 1.00 | 3 |' in lines[2]
    assert lines[3].endswith('| 100.0 (100.0 to 100.0) | 0.50 | 1 | 1.0e-02 |')
    rows[1].name = 'a config called $x_{$'  # of a stranger's
    picture = matplotlib.image.imread(BytesIO(figure_bytes(bar_chart(rows), dpi=110)))
    assert picture.shape[1] > picture.shape[0] > 100
    assert picture.std() > 0.05


@pytest.mark.slow
def test_segmentors(tmp_path):
    ours = write_config(tmp_path, SMALL_UPERNET, 'ours.py')
    peer = SMALL_UPERNET.replace('channels=16)', "channels=16, type='UPerHead')")
    theirs = write_config(tmp_path, peer, 'theirs.py')
    words = ('--size', 64, 96, '--batch', 2, '--repeats', 2, '--train', '--channels-last')
    done = run(
        'benchmark.py', ours, '--against', theirs, *words, '--out', tmp_path / 'out', cwd=tmp_path
    )
    assert done.code == 0, done.err[-2000:]
    report = json.loads((tmp_path / 'out' / 'benchmark.json').read_text())
    assert (report['size'], report['batch'], report['repeats']) == ([64, 96], 2, 2)
    rows = {row['name']: row for row in report['rows']}
    assert list(rows) == ['ours', 'ours, channels last', 'theirs', 'theirs, channels last']
    assert len({row['parameters'] for row in rows.values()}) == 1
    assert rows['ours']['multiplications'] < rows['theirs']['multiplications']
    assert rows['ours, channels last']['difference'] < 1e-4
    assert all(row['train']['turns'] == 2 for row in rows.values())
    assert (tmp_path / 'out' / 'benchmark.md').read_text().strip() in done.out
    assert str(tmp_path) not in json.dumps(report)
    assert (tmp_path / 'out' / 'benchmark.png').stat().st_size > 1000


@pytest.mark.slow
def test_detectors(tmp_path):
    config = write_config(tmp_path, SMALL_MASK_RCNN)
    words = ('--size', 96, 128, '--batch', 2, '--repeats', 1, '--train')
    done = run('benchmark.py', config, *words, cwd=tmp_path)
    assert done.code == 0, done.err[-2000:]
    assert '| small |' in done.out


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['missing.py'], 'config missing.py does not exist'),
        (['{config}', '--against', '{config}'], 'two configs are named small.py'),
        (['{config}', '--size', '32', '32', '--repeats', '1', '--train'], '--batch 2'),
        (['{config}', '--repeats', '0'], "'0' is not a whole number from 1"),
        (['{config}', '--cfg-options', 'model.decode_head.chanels=3'], 'has no "chanels"'),
    ],
)
def test_what_is_wrong_is_said_in_one_message(tmp_path, words, message):
    config = write_config(tmp_path, SMALL_UPERNET)
    done = run('benchmark.py', *(w.format(config=config) for w in words), cwd=tmp_path)
    assert done.code == 2
    assert message in done.err
    assert 'Traceback' not in done.err
