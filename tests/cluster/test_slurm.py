"""tools/slurm_train.sh under a real Slurm: time limit, requeue, resume; a kill; a busy port."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from run_files import assert_same
from slurm_cluster import PARTITION, ask
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


def start_again_at_once(slurm: dict[str, str], folder: Path) -> None:
    """Wait until the job of this folder is back in the queue; Slurm would let it wait there."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        for log in folder.glob('slurm-*.out'):
            if 'DUE TO JOB REQUEUE' in log.read_text():
                job = log.stem.removeprefix('slurm-')
                words = ['scontrol', 'update', f'JobId={job}', 'StartTime=now']
                if ask(*words, env=slurm) is not None:
                    return
        time.sleep(0.5)


@pytest.fixture(scope='module')
def whole(slurm, scenes, tmp_path_factory) -> Path:
    """The folder of an undisturbed run of two processes."""
    config = small(tmp_path_factory.mktemp('whole'))
    job = submit(slurm, config, scenes.ade20k)
    out, err = printed(job, 200)
    assert job.returncode == 0, out + err
    assert 'batch    4 = 2 × 2 processes' in out
    return config.parent


def test_time_limit_requeue_resume_equals_undisturbed(slurm, scenes, whole, tmp_path):
    config = small(tmp_path)
    job = submit(slurm, config, scenes.ade20k, '--cfg-options', 'custom_hooks.0.iteration=3',
                 'custom_hooks.0.time_limit=40', SRUN_ARGS='--time=60',
                 SIGNAL_AHEAD='5')  # fmt: skip
    start_again_at_once(slurm, tmp_path)
    out, err = printed(job, 300)
    assert job.returncode == 0, out + err
    assert out.count('stopped by SIGUSR1 after iteration 3 of 4, saved as') == 1
    assert re.search(r'job \d+: saved before its time limit; back into the queue', out)
    assert 'stopped.pth at iteration 3' in out
    assert sorted(file.name for file in (tmp_path / 'w').glob('*.pth')) == ['iter_4.pth']
    a, b = (read_checkpoint(folder / 'w' / 'iter_4.pth') for folder in (whole, tmp_path))
    for part in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(a[part], b[part], part)


def test_kill_9_of_one_task_ends_the_job_and_the_default_port_may_be_busy(slurm, scenes, tmp_path):
    """All other jobs of the machine may have taken torch's usual port, 29500."""
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
