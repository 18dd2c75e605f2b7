"""The processes of one run: what their launcher calls them, how they join, agree and part.

mmengine joins them too, but needs a GPU for every launcher, takes one fixed port for all jobs of a
machine, and knows only Open MPI. Here every launcher is translated into the variables of torchrun.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import zlib
from collections.abc import Iterator, Mapping

import torch
from mmengine.config import Config
from mmengine.dist import all_gather_object, get_rank, get_world_size, init_dist
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ..errors import UserError
from .endless_loader import built_loop

#: For each launcher, the variables that hold rank, local rank and number of processes, by the
#: programs that set them: Slurm's srun; Open MPI; MPICH and Intel MPI; PMIx.
_VARIABLES: dict[str, tuple[tuple[str, str, str], ...]] = {
    'pytorch': (('RANK', 'LOCAL_RANK', 'WORLD_SIZE'),),
    'slurm': (
        ('SLURM_PROCID', 'SLURM_LOCALID', 'SLURM_STEP_NUM_TASKS'),
        ('SLURM_PROCID', 'SLURM_LOCALID', 'SLURM_NTASKS'),
    ),
    'mpi': (
        ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_LOCAL_RANK', 'OMPI_COMM_WORLD_SIZE'),
        ('PMI_RANK', 'MPI_LOCALRANKID', 'PMI_SIZE'),
        ('PMI_RANK', 'PMI_LOCAL_RANK', 'PMI_SIZE'),
    ),
}
#: The number of processes on this machine: with all of them here, no address has to be known.
_LOCAL_SIZES = ('OMPI_COMM_WORLD_LOCAL_SIZE', 'MPI_LOCALNRANKS', 'PMI_LOCAL_SIZE')
#: What is the same in all processes of a job, and different in the next job.
_JOB_NAMES = {
    'slurm': ('SLURM_JOB_ID', 'SLURM_STEP_ID', 'SLURM_RESTART_COUNT'),
    'mpi': ('OMPI_MCA_ess_base_jobid', 'PMIX_NAMESPACE', 'PMI_JOBID', 'PMI_PORT'),
}
_STARTED_BY = {
    'pytorch': 'torchrun --nproc_per_node=2 tools/train.py CONFIG --launcher pytorch',
    'slurm': 'srun --ntasks=2 python tools/train.py CONFIG --launcher slurm',
    'mpi': 'mpirun -n 2 python tools/train.py CONFIG --launcher mpi',
}
#: Ports of jobs that name none, below those that systems give to outgoing connections.
_FIRST_PORT, _PORTS = 10_000, 20_000


def launched(launcher: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun's variables for a process that another launcher has started.

    Args:
        launcher: 'pytorch', 'slurm' or 'mpi'.
        environment: The variables of the process.

    Raises:
        UserError: There is no such launcher, it has not started the process, or the first machine
            is not known.
    """
    if launcher not in _VARIABLES:
        raise UserError(f'`launcher` {launcher} is not one of none, {", ".join(_VARIABLES)}.')
    names = next((n for n in _VARIABLES[launcher] if set(n) <= environment.keys()), None)
    if names is None:
        lacking = _VARIABLES[launcher][0][0]
        raise UserError(
            f'`launcher` {launcher}: this process was not started by it ({lacking} is not set). '
            f'Run: {_STARTED_BY[launcher]}'
        )
    rank, local_rank, size = (environment[name] for name in names)
    found = {'RANK': rank, 'LOCAL_RANK': local_rank, 'WORLD_SIZE': size}
    if launcher != 'pytorch':
        found['MASTER_ADDR'] = environment.get('MASTER_ADDR') or _address(launcher, environment)
        found['MASTER_PORT'] = environment.get('MASTER_PORT') or str(_port(launcher, environment))
    return found


def _address(launcher: str, environment: Mapping[str, str]) -> str:
    if launcher == 'slurm':
        nodes = environment.get('SLURM_STEP_NODELIST') or environment.get('SLURM_NODELIST', '')
        if environment.get('SLURM_STEP_NUM_NODES', environment.get('SLURM_NNODES')) == '1':
            return '127.0.0.1'
        with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
            words = ['scontrol', 'show', 'hostnames', nodes]
            told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
            return told.stdout.split()[0]
    else:
        sizes = [environment[name] for name in _LOCAL_SIZES if name in environment]
        everyone = [environment.get('OMPI_COMM_WORLD_SIZE') or environment.get('PMI_SIZE')]
        if sizes[:1] == everyone:
            return '127.0.0.1'
    raise UserError(
        f'`launcher` {launcher}: the processes are on several machines, and nothing names the '
        'first one. Set the variable MASTER_ADDR to its name or address for all of them.'
    )


def _port(launcher: str, environment: Mapping[str, str]) -> int:
    """Return a port that follows from the job's name: all processes find it, other jobs others."""
    parts = [environment[name] for name in _JOB_NAMES[launcher] if name in environment]
    # Without any name, the common parent: the launcher's part on this machine.
    return _FIRST_PORT + zlib.crc32('.'.join(parts or [str(os.getppid())]).encode()) % _PORTS


def refuse_strategies(config: Config) -> None:
    """Refuse FSDP, DeepSpeed and the like; they would otherwise be ignored silently."""
    strategy = config.get('strategy') or {}
    kind = strategy.get('type') if isinstance(strategy, dict) else strategy
    runner = config.get('runner_type', 'Runner')
    wrapper = str((config.get('model_wrapper_cfg') or {}).get('type')).rpartition('.')[2]
    sharded = wrapper == 'MMFullyShardedDataParallel'
    if strategy or runner != 'Runner' or sharded:
        told = f'strategy = {kind}' if strategy else f'runner_type = {runner}'
        if sharded:
            told = f'model_wrapper_cfg = {wrapper}'
        raise UserError(
            f"config {config.filename}: {told} is not supported here: training uses mmengine's "
            'Runner, with the whole model in every process. Checkpoints of other runners could be '
            'neither resumed nor tested. Remove strategy, runner_type and model_wrapper_cfg; '
            'docs/training.md, "Memory", says what else saves memory.'
        )


@contextlib.contextmanager
def joined_processes(config: Config) -> Iterator[None]:
    """Join the other processes of the run, if there are any, and part from them at the end.

    Processes that were joined before the block stay so.
    """
    if config.launcher == 'none' or torch.distributed.is_initialized():
        yield
        return
    os.environ.update(launched(config.launcher, os.environ))
    try:
        _join(config)
    except (RuntimeError, OSError) as error:  # torch's DistNetworkError is a RuntimeError
        where = f'{os.environ.get("MASTER_ADDR")}:{os.environ.get("MASTER_PORT")}'
        text = ' '.join(str(error).split())[:200]
        raise UserError(
            f'`launcher` {config.launcher}: the processes cannot meet at {where} ({text}). If '
            'another program uses this port, set the variable MASTER_PORT to a free one.'
        ) from error
    try:
        yield
    except BaseException:
        # Over NCCL, parting waits for the others, who may be waiting for this process.
        if torch.distributed.is_initialized() and torch.distributed.get_backend() == 'gloo':
            torch.distributed.destroy_process_group()
        raise
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _join(config: Config) -> None:
    if torch.cuda.is_available():
        # Slurm may show each process nothing but its own GPU, as number 0.
        local = int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()
        os.environ['LOCAL_RANK'] = str(local)
        init_dist('pytorch', **(config.get('env_cfg') or {}).get('dist_cfg', {}))
    else:
        torch.distributed.init_process_group('gloo')


@contextlib.contextmanager
def failing_together() -> Iterator[None]:
    """Let a UserError of one process within the block be one of all, at the end of the block.

    The others would otherwise go on, and wait for a process that is not there. Within the block,
    the processes must not wait for each other.
    """
    mine: UserError | None = None
    try:
        yield
    except UserError as error:
        mine = error
    if get_world_size() > 1:
        errors = all_gather_object(None if mine is None else (socket.gethostname(), str(mine)))
        first = next((rank for rank, error in enumerate(errors) if error), get_rank())
        if mine is None and first != get_rank():
            host, message = errors[first]
            raise UserError(f'process {first} on {host}: {message}')
    if mine is not None:
        raise mine


class GatherInMemory(Hook):
    """Let metrics send each other their results: they would write files, for a shared disk."""

    def before_run(self, runner: Runner) -> None:
        """Change those of the validation, which is built by now."""
        loop = built_loop(runner._val_loop)
        evaluator = getattr(loop, 'evaluator', None)
        for metric in getattr(evaluator, 'metrics', ()):
            if getattr(metric, 'collect_device', None) == 'cpu':
                metric.collect_device = 'gpu'  # so mmengine calls it; the CPU's are sent as well
