"""tools/slurm_train.sh under a real Slurm: time limit, requeue, resume; a kill; a busy port."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import run_ranks
from run_files import assert_same
from slurm_cluster import PARTITION
from tool import SMALL_UPERNET, TOOLS, write_config

from cb_mm.checkpoints.read import read_checkpoint

pytestmark = pytest.mark.slow

WAITING = """
_base_ = ['base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [
    dict(type='WaitForSignal'), dict(type='ReplayHook'), dict(type='MeanLossHook'),
]
train_dataloader = dict(batch_size=2, num_workers=1)
train_cfg = dict(max_iters=4, val_interval=4)
default_hooks = dict(checkpoint=dict(interval=4))
"""


def submit(slurm: dict[str, str], config: Path, data: Path, *words: object, **variables: str):
    """Start tools/slurm_train.sh, in the folder of its config."""
    return subprocess.Popen(
        [str(TOOLS / 'slurm_train.sh'), PARTITION, 'test', str(config), '--data-root', str(data),
         '--work-dir', str(config.parent / 'w'), *map(str, words)],
        cwd=config.parent, env={**slurm, **variables}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def printed(job: subprocess.Popen, seconds: float) -> tuple[str, str]:
    """What it printed until its end; one that does not end is ended, with its children."""
    try:
        return job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        raise


def small(folder: Path, hook: str = "dict(type='WaitForSignal')") -> Path:
    write_config(folder, SMALL_UPERNET, 'base.py')
    return write_config(folder, WAITING.replace("dict(type='WaitForSignal')", hook))


@pytest.fixture(scope='module')
def limited(slurm, scenes, tmp_path_factory) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A job whose time limit comes in its third iteration, and its folder; it takes minutes."""
    folder = tmp_path_factory.mktemp('limited')
    job = submit(slurm, small(folder), scenes.ade20k, '--cfg-options',
                 'custom_hooks.0.iteration=3', 'custom_hooks.0.time_limit=65',
                 SRUN_ARGS='--time=60', SIGNAL_AHEAD='30')  # fmt: skip
    yield job, folder
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()


def test_kill_9_of_one_task_ends_the_job_and_the_default_port_may_be_busy(
    slurm, limited, scenes, tmp_path
):
    """Beside another job. All others of the machine may have taken torch's usual port, 29500."""
    hook = "dict(type='SignalAt', iteration=3, rank=1, name='SIGKILL')"
    config = small(tmp_path, hook)
    with socket.socket() as usual:
        with contextlib.suppress(OSError):  # something else has it already
            usual.bind(('127.0.0.1', 29500))
            usual.listen()
        job = submit(slurm, config, scenes.ade20k, '--cfg-options',
                     'default_hooks.checkpoint.interval=2')  # fmt: skip
        out, err = printed(job, 300)
    assert job.returncode in (137, 143), out + err  # 143 if srun was faster than the other's end
    assert 'Iter(train) [2/4]' in out
    assert 'back into the queue' not in out
    assert [file.name for file in (tmp_path / 'w').glob('*.pth')] == ['iter_2.pth']
    assert read_checkpoint(tmp_path / 'w' / 'iter_2.pth')['meta']['iter'] == 2


def test_time_limit_requeue_resume_equals_undisturbed(limited, scenes, tmp_path):
    config = small(tmp_path)
    words = (config, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'w')
    whole = run_ranks('train.py', *words, cwd=tmp_path)  # of two processes, as those of the job
    assert [end.code for end in whole] == [0, 0], whole
    job, folder = limited
    out, err = printed(job, 420)
    assert job.returncode == 0, out + err
    assert out.count('batch    4 = 2 × 2 processes') == 2
    assert out.count('stopped by SIGUSR1 after iteration 3 of 4, saved as') == 1
    assert re.search(r'job \d+: saved before its time limit; back into the queue', out)
    assert 'stopped.pth at iteration 3' in out
    assert sorted(file.name for file in (folder / 'w').glob('*.pth')) == ['iter_4.pth']
    a, b = (read_checkpoint(one / 'w' / 'iter_4.pth') for one in (tmp_path, folder))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)
