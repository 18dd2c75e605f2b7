"""``mpirun`` with Open MPI: two processes train, are signalled, and one alone resumes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import run, wait_for
from tool import SMALL_UPERNET, TOOLS, write_config

from cb_mm.checkpoints.read import read_checkpoint

pytestmark = pytest.mark.slow

WAITING = """
_base_ = ['base.py']
custom_imports = dict(imports=['cb_mm', 'signal_hooks'])
custom_hooks = [
    dict(type='WaitForSignal', iteration=2), dict(type='ReplayHook'), dict(type='MeanLossHook'),
]
train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False)
train_cfg = dict(max_iters=3, val_interval=9)
"""


@pytest.mark.skipif(shutil.which('mpirun') is None,
                    reason='mpirun is not installed: tests/cluster/install.sh')  # fmt: skip
def test_mpirun_is_stopped_and_resumed_with_another_number_of_processes(
    job_environment, scenes, tmp_path
):
    write_config(tmp_path, SMALL_UPERNET, 'base.py')
    config = write_config(tmp_path, WAITING)
    words = [str(config), '--data-root', str(scenes.ade20k), '--work-dir', str(tmp_path / 'w')]
    start = ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '2', sys.executable]
    log = tmp_path / 'log'
    with log.open('w') as out:
        job = subprocess.Popen(
            [*start, str(TOOLS / 'train.py'), *words, '--launcher', 'mpi'],
            cwd=tmp_path, env=job_environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        waiting = [tmp_path / 'w' / f'waiting_{rank}' for rank in range(2)]
        wait_for(lambda: all(map(Path.exists, waiting)) or job.poll() is not None, 300)
        job.send_signal(signal.SIGUSR1)  # mpirun passes it on
        try:
            code = job.wait(240)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            raise
    assert code == 138, log.read_text()
    assert 'batch    4 = 2 × 2 processes' in log.read_text()
    assert 'stopped by SIGUSR1 after iteration 2 of 3, saved as' in log.read_text()
    assert read_checkpoint(tmp_path / 'w' / 'iter_2.pth')['meta']['cb_mm_scale'] == {
        'processes': 2, 'batch': 4,
    }  # fmt: skip

    done = run('train.py', *words, '--resume', cwd=tmp_path)
    assert done.code == 0, done.err
    assert ('change   the checkpoint is of 2 processes and a batch of 4, this run of 1 process and '
            '2: its lr is for the former') in done.out  # fmt: skip
