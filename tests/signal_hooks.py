"""For the tests of stopping: a process that signals itself, or its whole group, as it works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from cb_mm.engine.hooks import StopOnSignalHook


@HOOKS.register_module()
class SignalAt(Hook):
    """Sends a signal in one iteration of training, or in the first one of a validation.

    Args:
        iteration: Counted from 1; 0 for none.
        name: Of the signal.
        rank: The process that gets it.
        validation: Send it in the validation after that iteration.
        twice: Once more while the checkpoint is being written.
        group: To the processes that load data as well, from another process, as schedulers do.
    """

    def __init__(
        self,
        iteration: int = 0,
        name: str = 'SIGTERM',
        rank: int = 0,
        validation: bool = False,
        twice: bool = False,
        group: bool = False,
    ) -> None:
        self.iteration, self.number, self.rank = iteration, getattr(signal, name), rank
        self.validation, self.twice, self.group = validation, twice, group

    def _send(self, runner) -> None:
        if runner.rank == self.rank:
            target = -os.getpgid(0) if self.group else os.getpid()
            words = ['kill', f'-{self.number.value}', '--', str(target)]
            subprocess.run(words, check=True, start_new_session=True, timeout=60)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if not self.validation and runner.iter + 1 == self.iteration:
            self._send(runner)

    def before_val_iter(self, runner, batch_idx, data_batch=None) -> None:
        if self.validation and runner.iter == self.iteration and batch_idx == 0:
            self._send(runner)

    def before_save_checkpoint(self, runner, checkpoint) -> None:
        if self.twice:
            self._send(runner)


class SignalAtDraft:
    """Sends a signal to its own process group, twice, when a file of this name is drafted."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name

    def __call__(self) -> None:
        # Tests that run in the background of a shell inherit that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple) -> None:
        if event == 'open' and self.name and self.name in str(args[0]) and 'part' in str(args[0]):
            self.name = ''
            for _ in range(2):  # as a terminal or a scheduler does: all processes, and again
                os.killpg(os.getpid(), self.number)


class SignalAtImage(SignalAtDraft):
    """Sends it when the second image is opened by its reader."""

    def __init__(self, number: int) -> None:
        super().__init__(number, '00000002.jpg')

    def _hear(self, event: str, args: tuple) -> None:
        if event == 'open' and self.name and str(args[0]).endswith(self.name):
            self.name = ''
            os.killpg(os.getpid(), self.number)


@HOOKS.register_module()
class WaitForSignal(Hook):
    """Waits in one iteration of a run that is not resumed, until its process was asked to stop.

    That it waits shows in a file ``waiting_RANK`` in the work directory.

    Args:
        iteration: Counted from 1; 0 for none.
        time_limit: Let the time limit of its Slurm job come in this many seconds: jobs have whole
            minutes, and the start takes as long as the machine is busy. Afterwards it is an hour.
    """

    def __init__(self, iteration: int = 0, time_limit: int = 0) -> None:
        self.iteration, self.time_limit = iteration, time_limit

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if runner.iter + 1 == self.iteration and not runner._resume:
            stop = next(hook for hook in runner.hooks if isinstance(hook, StopOnSignalHook))
            if self.time_limit and runner.rank == 0:
                self._change_job(f'EndTime=now+{self.time_limit}')
            (Path(runner.work_dir) / f'waiting_{runner.rank}').touch()
            end = time.monotonic() + 240  # Slurm looks at its clock every half minute
            while not stop.request.number and time.monotonic() < end:
                time.sleep(0.1)
            if self.time_limit and runner.rank == 0:
                self._change_job('TimeLimit=60')

    def _change_job(self, change: str) -> None:
        words = ['scontrol', 'update', f'JobId={os.environ["SLURM_JOB_ID"]}', change]
        subprocess.run(words, check=True, timeout=60)
