"""Randomness that belongs to one iteration, so that a resumed run equals an uninterrupted one.

The samplers that name every sample with its place are in `cb_mm.datasets.samplers.replay`.
"""

from __future__ import annotations

from typing import Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import IterBasedTrainLoop, Runner

from ...datasets.samplers.replay import ReplayInfiniteSampler, derive_seed, seed_all


class _ResumedIterator:
    """The batches from iteration ``first`` on.

    mmengine's original loop calls `next` once for every iteration it has done, the maintained one
    calls `skip_iter`; here both are free, since the sampler starts in the right place.
    """

    def __init__(self, dataloader: Any, first: int) -> None:
        dataloader.sampler.skip(first * dataloader.batch_size)
        self.to_skip = first
        self.batches = iter(dataloader)

    def skip_iter(self, count: int) -> None:
        """Do as many calls of `next` at once."""
        self.to_skip -= count

    def __iter__(self) -> _ResumedIterator:
        return self

    def __next__(self) -> Any:
        if self.to_skip > 0:
            self.to_skip -= 1
            return None
        return next(self.batches)


@HOOKS.register_module()
class ReplayHook(Hook):
    """Seed every training iteration separately, and let a resumed run start at once."""

    priority = 'VERY_HIGH'

    def before_train_epoch(self, runner: Runner) -> None:
        """Go straight to the right place after resuming in the middle of an endless stream."""
        loop = runner.train_loop
        if (
            isinstance(loop, IterBasedTrainLoop)
            and loop.iter > 0
            and isinstance(loop.dataloader.sampler, ReplayInfiniteSampler)
        ):
            loop.dataloader_iterator = _ResumedIterator(loop.dataloader, loop.iter)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Seed what the model draws in this iteration (drop path, dropout, sampled boxes)."""
        seed_all(derive_seed(runner.seed, 'iteration', runner.iter, runner.rank))
