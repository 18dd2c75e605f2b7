"""A real Slurm of one machine, in a scratch folder: munged, slurmctld and slurmd, as root."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tool import free_port

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol')
PARTITION = 'tests'

_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that went back into the queue starts again when its old credentials have expired.
AuthInfo=socket={folder}/munge.socket,cred_expire=30
CryptoType=crypto/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
# No control groups, which containers often lack.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
JobRequeue=1
KillWait=10
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName={partition} Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str | None:
    """What is not there, for the message of a skipped test."""
    path = os.environ['PATH'] + os.pathsep + '/usr/sbin'
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f'Slurm is not installed ({", ".join(missing)}): tests/cluster/install.sh'
    if os.geteuid() != 0:
        return 'a Slurm of its own needs root'
    return None


@contextlib.contextmanager
def running_cluster() -> Iterator[Path]:
    """Start it, and end it; the folder with its slurm.conf, which SLURM_CONF has to name."""
    started: list[subprocess.Popen] = []
    # munged wants folders that only root can write to, and a short path for its socket.
    folder = Path(tempfile.mkdtemp(prefix='slurm_'))
    try:
        folder.chmod(0o755)
        for name in ('state', 'spool'):
            (folder / name).mkdir()
        key = folder / 'munge.key'
        key.touch(0o400)
        key.write_bytes(secrets.token_bytes(128))
        host = socket.gethostname().split('.')[0]
        (folder / 'slurm.conf').write_text(
            _CONF.format(folder=folder, host=host, partition=PARTITION, controller=free_port(),
                         daemon=free_port())
        )  # fmt: skip
        sockets = {name: folder / f'munge.{name}' for name in ('socket', 'pid', 'log', 'seed')}
        munged = ['munged', '--foreground', '--force', f'--key-file={key}']
        munged += [f'--{name if name == "socket" else name + "-file"}={file}'
                   for name, file in sockets.items()]  # fmt: skip
        conf = str(folder / 'slurm.conf')
        for words in (munged, ['slurmctld', '-D', '-f', conf], ['slurmd', '-D', '-f', conf]):
            started.append(_start(words, folder))
            time.sleep(0.5)
        _wait_until_idle(conf, folder)
        yield folder
    finally:
        if len(started) == 3:
            _end_jobs(folder / 'slurm.conf')
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _start(words: list[str], folder: Path) -> subprocess.Popen:
    environment = {**os.environ, 'PATH': os.environ['PATH'] + os.pathsep + '/usr/sbin'}
    with (folder / f'{words[0]}.out').open('wb') as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=out,
                                start_new_session=True)  # fmt: skip


def ask(*words: str, env: dict[str, str]) -> str | None:
    """What a program of Slurm's prints; None if it fails, or waits for a controller in vain."""
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _end_jobs(conf: Path) -> None:
    """End what a failed test has left: it would outlive the daemons."""
    env = {**os.environ, 'SLURM_CONF': str(conf)}
    for _ in range(20):
        left = (ask('squeue', '-h', '-o', '%i', env=env) or '').split()
        if not left or ask('scancel', '--full', '--signal=KILL', *left, env=env) is None:
            return
        time.sleep(1)


def _wait_until_idle(conf: str, folder: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        state = ask('sinfo', '-h', '-o', '%t', env={**os.environ, 'SLURM_CONF': conf})
        if (state or '').strip() == 'idle':
            return
        time.sleep(0.5)
    logs = '\n'.join(file.read_text()[-1500:] for file in folder.glob('*.out'))
    raise RuntimeError(f'Slurm did not start: {logs}')
