"""A hook for the tests of stopping: it signals its own process, or its whole group, in training."""

from __future__ import annotations

import os
import signal
import subprocess

from mmengine.hooks import Hook
from mmengine.registry import HOOKS


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
            subprocess.run(words, check=True, start_new_session=True)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if not self.validation and runner.iter + 1 == self.iteration:
            self._send(runner)

    def before_val_iter(self, runner, batch_idx, data_batch=None) -> None:
        if self.validation and runner.iter == self.iteration and batch_idx == 0:
            self._send(runner)

    def before_save_checkpoint(self, runner, checkpoint) -> None:
        if self.twice:
            self._send(runner)
