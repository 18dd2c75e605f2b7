"""The shell scripts: what they start, and what they say when called wrongly."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tool import SMALL_UPERNET, TOOLS, environment, write_config


def sh(name: str, *words: object, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(TOOLS / name), *map(str, words)],
        env={**environment(), 'PYTHON': sys.executable, **env},
        capture_output=True,
        text=True,
        timeout=300,
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


@pytest.mark.parametrize(
    ('name', 'words', 'expected'),
    [
        ('slurm_train.sh', ['part', 'job', 'c.py', '--amp'], 'train.py c.py --amp'),
        ('slurm_test.sh', ['part', 'job', 'c.py', 'c.pth'], 'test.py c.py c.pth'),
    ],
)
def test_slurm_scripts_call_srun(name, words, expected, tmp_path):
    """With an srun that only prints what it is asked to start."""
    srun = tmp_path / 'srun'
    srun.write_text('#!/bin/sh\necho "$@"\n')
    srun.chmod(0o755)
    done = sh(name, *words, PATH=f'{tmp_path}:{os.environ["PATH"]}', GPUS='16', SRUN_ARGS='--qos=x')
    assert done.returncode == 0, done.stderr
    for part in ('--partition=part', '--job-name=job', '--ntasks=16', '--ntasks-per-node=8',
                 '--gres=gpu:8', '--qos=x', f'{expected} --launcher slurm'):  # fmt: skip
        assert part in done.stdout


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
