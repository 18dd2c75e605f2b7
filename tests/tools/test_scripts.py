"""The shell scripts: what they start, and what they say when called wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from forked import wait_for
from tool import REPO, SMALL_UPERNET, TOOLS, environment, write_config


def sh(name: str, *words: object, cwd=None, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(TOOLS / name), *map(str, words)],
        env={**environment(), 'PYTHON': sys.executable, **env},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )


@pytest.mark.slow
def test_dist_train_trains(scenes, tmp_path):
    config = write_config(tmp_path, SMALL_UPERNET)
    done = sh(
        'dist_train.sh', config, 2, '--data-root', scenes.ade20k, '--work-dir', tmp_path / 'work',
        '--cfg-options', 'train_cfg.max_iters=2', 'train_dataloader.batch_size=2',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert 'batch    4 = 2 × 2 processes' in done.stdout
    assert (tmp_path / 'work' / 'iter_2.pth').exists()


@pytest.mark.parametrize('words', [
    [str(TOOLS / 'check_data.py'), 'mine.py'],
    [str(TOOLS / 'train.py'), 'mine.py'],
    ['-m', 'cb_mm_cli', 'export', 'mine.py', 'mine.pth', '--out', 'x'],
])  # fmt: skip
def test_control_c_while_a_tool_is_starting_is_one_line(words, tmp_path):
    (tmp_path / 'torch.py').write_text('import signal\nsignal.raise_signal(signal.SIGINT)\n')
    env = {**environment(), 'PYTHONPATH': os.pathsep.join([str(tmp_path), str(REPO)])}
    done = subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.stderr == 'stopped.\n'
    assert done.returncode == -signal.SIGINT  # which a shell calls 130


#: A tool that imports nothing: it fails, is killed, or stops when a signal asks for it.
TOOL = """
import os, signal, sys, time
kind, rank = sys.argv[1], os.environ['RANK']
def stop(number, frame):
    if rank == '0':
        print(f'stopped by {signal.Signals(number).name}; --resume resumes.', file=sys.stderr)
    sys.exit(128 + number)
if kind == 'fails':
    sys.exit('error: no data.' if rank == '0' else 1)
if kind == 'killed':
    os.kill(os.getpid(), signal.SIGKILL)
for name in ('SIGTERM', 'SIGUSR1'):
    signal.signal(getattr(signal, name), stop)
open(f'ready{rank}', 'w')
time.sleep(600)
"""


def test_what_a_tool_says_when_it_ends_is_the_last_line(tmp_path):
    """torchrun's own traceback does not follow, and the exit code is the tool's."""
    for name in ('launch.sh', '_torchrun.py'):
        (tmp_path / name).symlink_to(TOOLS / name)
    (tmp_path / 'tool.py').write_text(TOOL)
    started = {}
    for kind in ('fails', 'killed', 'SIGTERM', 'SIGUSR1'):
        (tmp_path / kind).mkdir()
        started[kind] = subprocess.Popen(
            [str(tmp_path / 'launch.sh'), 'tool.py', '2', kind], cwd=tmp_path / kind, text=True,
            env={**environment(), 'PYTHON': sys.executable}, stderr=subprocess.PIPE,
        )  # fmt: skip
    for kind in ('SIGTERM', 'SIGUSR1'):
        files = [tmp_path / kind / f'ready{rank}' for rank in range(2)]
        assert wait_for(lambda files=files: all(file.exists() for file in files), 300)
        started[kind].send_signal(getattr(signal, kind))
    ends = {kind: process.communicate(timeout=300)[1] for kind, process in started.items()}
    codes = {kind: process.returncode for kind, process in started.items()}
    assert codes == {'fails': 1, 'killed': 137, 'SIGTERM': 143, 'SIGUSR1': 138}
    assert ends['fails'] == 'error: no data.\n'
    assert ends['killed'] in [f'error: process {rank} was ended by SIGKILL.\n' for rank in (0, 1)]
    for kind in ('SIGTERM', 'SIGUSR1'):
        assert ends[kind] == f'stopped by {kind}; --resume resumes.\n'


CALLS = [
    ('slurm_train.sh', ['part', 'job', 'c.py', '--amp'], 'train.py c.py --amp'),
    ('slurm_test.sh', ['part', 'job', 'c.py', 'c.pth'], 'test.py c.py c.pth'),
]


def fake(folder, name: str, text: str) -> None:
    """A program of Slurm's that only tells what it was asked for."""
    file = folder / name
    file.write_text(f'#!/bin/sh\n{text}\n')
    file.chmod(0o755)


def fake_job(folder, states: str, code: str = '0:0') -> None:
    """Programs of Slurm's for a job that goes through these states, one each time it is asked."""
    fake(folder, 'sbatch', 'echo 7; echo "$@" >&2; cat >&2')
    fake(folder, 'sleep', '')
    (folder / 'states').write_text('\n'.join([*states.split(), '']))
    fake(
        folder,
        'scontrol',
        f"""
        cd {folder}; state=$(head -n 1 states)
        [ "$(wc -l < states)" -gt 1 ] && sed -i 1d states
        echo "JobId=7 JobState=$state Reason=None Requeue=1 ExitCode={code} DerivedExitCode=0:0"
    """,
    )


@pytest.mark.parametrize(
    ('states', 'code', 'expected'),
    [
        ('PENDING RUNNING CANCELLED REQUEUED PENDING RUNNING COMPLETING COMPLETED', '0:0', 0),
        ('RUNNING FAILED', '2:0', 2),
        ('RUNNING FAILED', '0:9', 137),
        ('RUNNING CANCELLED', '0:0', 1),
    ],
)
def test_slurm_scripts_end_with_the_job_and_its_code(states, code, expected, tmp_path):
    """A job that goes back into the queue was seen as cancelled for a moment, and given up."""
    fake_job(tmp_path, states, code)
    done = sh('slurm_train.sh', 'p', 'j', 'c.py', PATH=f'{tmp_path}:{os.environ["PATH"]}')
    assert done.returncode == expected, done.stderr
    assert (tmp_path / 'states').read_text().split() == states.split()[-1:]


def test_a_job_that_goes_back_is_waited_for_on_a_busy_machine(tmp_path):
    """Slurm counts the restart at once, and may call the job cancelled for long, or not answer."""
    fake_job(
        tmp_path, 'RUNNING CANCELLED CANCELLED CANCELLED silent silent PENDING RUNNING COMPLETED'
    )
    program = tmp_path / 'scontrol'
    text = program.read_text().replace('Requeue=1', 'Requeue=1 Restarts=$restarts')
    program.write_text(text.replace('echo "JobId', """
        [ "$state" = silent ] && { echo 'Unable to contact slurm controller' >&2; exit 1; }
        restarts=1; [ "$(wc -l < states)" -gt 7 ] && restarts=0
        echo "JobId"""))  # fmt: skip
    (tmp_path / 'slurm-7.out').write_text('back into the queue (scontrol requeue)\n')
    done = sh('slurm_train.sh', 'p', 'j', 'c.py', PATH=f'{tmp_path}:{os.environ["PATH"]}',
              cwd=tmp_path)  # fmt: skip
    assert (tmp_path / 'states').read_text().split() == ['COMPLETED']
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(('name', 'words', 'expected'), CALLS)
def test_slurm_scripts_submit_a_job_that_starts_them_again(name, words, expected, tmp_path):
    fake_job(tmp_path, 'COMPLETED')
    done = sh(name, *words, PATH=f'{tmp_path}:{os.environ["PATH"]}', GPUS='16', SRUN_ARGS='--qos=x')
    assert done.returncode == 0, done.stderr
    for part in ('--partition=part', '--job-name=job', '--ntasks=16', '--ntasks-per-node=8',
                 '--gres=gpu:8', '--qos=x', '--requeue', '--signal=USR1@120', 'job 7, log',
                 f'slurm_launch.sh {expected.replace(".py", ".py part job", 1)}'):  # fmt: skip
        assert part in done.stderr
    assert '--gres' not in sh(name, *words, PATH=f'{tmp_path}:{os.environ["PATH"]}', GRES='').stderr


@pytest.mark.parametrize(('name', 'words', 'expected'), CALLS)
@pytest.mark.parametrize(('code', 'requeued'), [(0, False), (2, False), (143, False), (138, True)])
def test_inside_a_job_they_start_its_processes(name, words, expected, code, requeued, tmp_path):
    """The first time, and once more after Slurm's signal: then a training resumes."""
    fake(tmp_path, 'srun', f'echo "$@"; exit {code}')
    fake(tmp_path, 'scontrol', 'echo "$@"')
    fake(tmp_path, 'sleep', '')
    job = dict(PATH=f'{tmp_path}:{os.environ["PATH"]}', SLURM_JOB_ID='7', SLURMD_NODENAME='a')
    done = sh(name, *words, **job)
    assert done.returncode == code, done.stderr
    assert f'{expected} --launcher slurm' in done.stdout
    assert ('requeue 7' in done.stdout) == requeued
    again = sh(name, *words, **job, SLURM_RESTART_COUNT='1').stdout
    resume = ' --resume' if name == 'slurm_train.sh' else ''
    assert f'{expected}{resume} --launcher slurm' in again


@pytest.mark.parametrize('failures', [2, 99])
def test_a_controller_that_does_not_answer_is_asked_again(failures, tmp_path):
    """Otherwise a saved run would end there, and wait for somebody to submit it."""
    fake(tmp_path, 'srun', 'exit 138')
    fake(tmp_path, 'scontrol', f"""
        echo asked >> {tmp_path}/asked
        [ "$(wc -l < {tmp_path}/asked)" -gt {failures} ] && echo "$@ done" ||
        {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}
    """)  # fmt: skip
    fake(tmp_path, 'sleep', '')
    done = sh('slurm_train.sh', 'p', 'j', 'c.py', PATH=f'{tmp_path}:{os.environ["PATH"]}',
              SLURM_JOB_ID='7', SLURMD_NODENAME='a')  # fmt: skip
    assert done.returncode == 138
    assert ('requeue 7 done' in done.stdout) == (failures == 2)
    assert ('submit it again, with --resume' in done.stderr) == (failures == 99)


def test_a_job_meets_at_a_port_that_the_system_gives_to_nobody_else(tmp_path):
    fake(tmp_path, 'srun', 'echo "port $MASTER_PORT"')
    job = dict(PATH=f'{tmp_path}:{os.environ["PATH"]}', SLURM_JOB_ID='7', SLURMD_NODENAME='a')
    done = sh('slurm_train.sh', 'p', 'j', 'c.py', **job)
    assert 10_000 <= int(done.stdout.split()[1]) < 30_000
    assert 'port 7\n' in sh('slurm_train.sh', 'p', 'j', 'c.py', **job, MASTER_PORT='7').stdout


@pytest.mark.parametrize(
    'name', ['dist_train.sh', 'dist_test.sh', 'slurm_train.sh', 'slurm_test.sh']
)
def test_without_arguments_they_say_how_to_call_them(name):
    done = sh(name)
    assert done.returncode == 2
    assert f'tools/{name}' in done.stderr


def test_a_wrong_number_of_gpus():
    done = sh('dist_train.sh', 'c.py', 'many')
    assert done.returncode == 2
    assert 'GPUS is "many"' in done.stderr
