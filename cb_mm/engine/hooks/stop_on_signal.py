"""A training run that a signal ends: the iteration is finished, saved, and resumed exactly."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, barrier, get_world_size, is_main_process
from mmengine.hooks import EMAHook, Hook
from mmengine.optim import OptimWrapperDict
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...errors import in_users_words
from ..endless_loader import built_loaders, start_again
from ..signals import Stopped, StopRequest, leave_signals_to_parent, signal_name, stop_on_signals
from .checkpoint import STOPPED, SafeCheckpointHook

#: In the checkpoint of a run that was stopped within an epoch: [batches done, batches in all].
_PLACE = 'place_in_epoch'


@HOOKS.register_module()
class StopOnSignalHook(Hook):
    """End a training run, with a checkpoint, when any of its processes was asked to stop.

    All processes must stop at the same iteration. In training their requests travel with the
    check of the loss (see `FiniteLossHook`), so that no step waits once more.

    Args:
        compiled: The first iteration compiles the model, which takes minutes, and has nothing to
            save: a signal ends it at once. A launcher then ends the other processes.

    Attributes:
        request: What this process was asked. Our tools set it before they start the run; by
            itself, the hook listens while the runner trains.
        agreed: The signal that ends all processes; 0 for none.
    """

    priority = 'LOWEST'  # after the schedulers and the periodic checkpoint

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.request: StopRequest | None = None
        self.listening = contextlib.ExitStack()
        self.agreed = 0
        self.settled = False
        self.common_batches = 0
        self.later: _LaterBatches | None = None

    def before_run(self, runner: Runner) -> None:
        """Listen, and let the processes that load data leave signals to this one."""
        loaders = built_loaders(runner)
        if self.request is None:
            trains = 'train' in loaders
            listen = stop_on_signals() if trains else contextlib.nullcontext(StopRequest())
            self.request = self.listening.enter_context(listen)
        for loader in loaders.values():
            if not isinstance(loader.worker_init_fn, _WorkerStart):
                loader.worker_init_fn = _WorkerStart(loader.worker_init_fn)
        start_again(runner)

    def after_run(self, runner: Runner) -> None:
        """Restore the previous signal handlers."""
        self.listening.close()

    def settle(self, number: int) -> None:
        """Take the signal that all processes agree on; 0 for none."""
        self.agreed, self.settled = number, True

    def _settle_now(self) -> None:
        number = torch.tensor([self.request.number if self.request else 0])
        if get_world_size() > 1:
            all_reduce(number, 'max')
        self.settle(int(number.item()))

    def before_train_epoch(self, runner: Runner) -> None:
        """Go straight to the next batch after a stop within an epoch."""
        done, batches = _place_in(runner.message_hub.runtime_info.pop(_PLACE, None))
        loop = runner.train_loop
        if not (done and isinstance(loop, EpochBasedTrainLoop)):
            return
        # With other processes or another batch size, the same share of the epoch.
        skipped = done * len(loop.dataloader) // batches
        self.later = later = _LaterBatches(loop.dataloader.batch_sampler, skipped)
        # A DataLoader forbids it, and a loop has no other way to begin within an epoch: what it
        # counts from 0 must be counted from there.
        object.__setattr__(loop.dataloader, 'batch_sampler', later)
        run_iter = loop.run_iter

        def run_later(batch_idx: int, data_batch: Any) -> None:
            run_iter(batch_idx + later.skipped, data_batch)

        loop.run_iter = run_later

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """End the run at once, if asked to, while the model is being compiled."""
        if self.compiled and self.request is not None:
            self.request.end_now = True
            if self.request.number:  # it came just before
                raise Stopped(self.request.number)

    def after_train_epoch(self, runner: Runner) -> None:
        """Start the next epoch at its first batch."""
        if self.later is not None:
            self.later.skipped = 0

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Stop after this iteration, unless gradients are still being accumulated."""
        if self.compiled and self.request is not None:
            self.compiled = self.request.end_now = False
        if not self.settled:  # a single process, or a model with its own update
            self._settle_now()
        self.settled = False
        if self.agreed and updated(runner.optim_wrapper):
            note_place(runner, batch_idx)
            self._stop(runner, runner.iter + 1)

    def before_val_epoch(self, runner: Runner) -> None:
        """Find out how many batches all processes have."""
        batches = torch.tensor([len(runner.val_dataloader)])
        if get_world_size() > 1:
            all_reduce(batches, 'min')
        self.common_batches = int(batches.item())

    def after_val_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Stop within a validation; it is done again after resuming."""
        if batch_idx >= self.common_batches:
            return
        self._settle_now()
        self.settled = False
        if self.agreed:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):  # it exchanged the weights for this validation
                    hook.after_val_epoch(runner)
            self._stop(runner, runner.iter)

    def _stop(self, runner: Runner, iteration: int) -> None:
        hook = next((h for h in runner.hooks if isinstance(h, SafeCheckpointHook)), None)
        file = hook.save_between(runner, iteration, STOPPED) if hook is not None else None
        barrier()  # a launcher ends all processes as soon as one has ended
        runner.call_hook('after_run')  # what loggers have not written yet
        if is_main_process():
            words = in_users_words(_last_words(self.agreed, iteration, runner, file))
            print(words, file=sys.stderr, flush=True)
        if self.request is not None:
            self.request.leaving = get_world_size() > 1
        raise Stopped(self.agreed)


def _last_words(number: int, iteration: int, runner: Runner, file: str | Path | None) -> str:
    stopped = f'stopped by {signal_name(number)} after iteration {iteration} of {runner.max_iters}'
    if file is None:
        return f'{stopped}; the config has no SafeCheckpointHook, so nothing was saved.'
    return f'{stopped}, saved as {file}. To resume, run the same command with `resume`.'


def save_now(runner: Runner, iteration: int, batches: int) -> str | None:
    """Save a run that ends after this iteration, of which no gradients are left unused.

    Args:
        runner: In a hook between two iterations.
        iteration: How many are done.
        batches: How many of them in this epoch.

    Returns:
        The file; None without a `SafeCheckpointHook`, or while gradients are being accumulated.
    """
    hook = next((h for h in runner.hooks if isinstance(h, SafeCheckpointHook)), None)
    if hook is None or not updated(runner.optim_wrapper):
        return None
    note_place(runner, batches - 1)
    return hook.save_between(runner, iteration, STOPPED)


def note_place(runner: Runner, batch_idx: int) -> None:
    """Let the next checkpoint say how far the epoch is."""
    if isinstance(runner.train_loop, EpochBasedTrainLoop):
        place = [batch_idx + 1, len(runner.train_dataloader)]
        runner.message_hub.update_info(_PLACE, place)


def _place_in(noted: Any) -> tuple[int, int]:
    """Return what `note_place` noted, or the start for what it cannot have noted."""
    if not isinstance(noted, (list, tuple)) or [*map(type, noted)] != [int, int]:
        return 0, 1
    done, batches = noted
    return (done, batches) if 0 <= done <= batches and batches else (0, 1)


def forget_place(runner: Runner) -> None:
    """Undo `note_place` in a run that goes on."""
    runner.message_hub.runtime_info.pop(_PLACE, None)


def updated(wrapper: Any) -> bool:
    """Return whether the optimizer has used all gradients so far: they are not in a checkpoint."""
    wrappers = wrapper.values() if isinstance(wrapper, OptimWrapperDict) else [wrapper]
    return all(one.should_update() for one in wrappers)


class _WorkerStart:
    """Run a loader's own ``worker_init_fn`` in a process that leaves signals to its parent."""

    def __init__(self, start: Any) -> None:
        self.start = start

    def __call__(self, worker_id: int) -> None:
        leave_signals_to_parent()
        if self.start is not None:
            self.start(worker_id)


class _LaterBatches:
    """A batch sampler that starts later; nothing is loaded for the part before."""

    def __init__(self, batches: Any, skipped: int) -> None:
        self.batches, self.skipped = batches, skipped

    def __iter__(self) -> Iterator[list[int]]:
        return itertools.islice(self.batches, self.skipped, None)

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)
