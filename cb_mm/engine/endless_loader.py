"""Changes to a data loader that mmengine's endless training loop has already started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from mmengine.dataset import InfiniteSampler
from mmengine.runner import BaseLoop, IterBasedTrainLoop, Runner
from torch.utils.data import DataLoader


def built_loop(loop: Any) -> BaseLoop | None:
    """Return a loop of a runner; None before it is built, and where there is none."""
    return loop if isinstance(loop, BaseLoop) else None


def built_loaders(runner: Runner) -> dict[str, DataLoader]:
    """Return the loaders that a runner has built, by 'train', 'val' and 'test'."""
    loops = dict(train=runner._train_loop, val=runner._val_loop, test=runner._test_loop)
    return {
        name: loop.dataloader
        for name, loop in loops.items()
        if built_loop(loop) is not None and isinstance(loop.dataloader, DataLoader)
    }


def start_again(runner: Runner) -> None:
    """Let the workers of an endless loop start with the loader as it is now, at its first batch.

    A hook is first called when the loops are built. The original mmengine has started the workers
    of an endless one by then, each with a copy of the data set; the maintained one starts them with
    the first batch, and nothing has to be done.
    """
    loop = built_loop(runner._train_loop)
    if not isinstance(loop, IterBasedTrainLoop):
        return
    old = loop.dataloader_iterator
    if getattr(old, '_iterator', None) is None:
        return
    loader: Any = loop.dataloader
    loader._iterator = None  # persistent workers would be used again
    sampler = loader.sampler
    if isinstance(sampler, InfiniteSampler) and isinstance(sampler.indices, Iterator):
        sampler.indices = sampler._indices_of_rank()  # the first batches were drawn from it
    kind = type(old)
    loop.dataloader_iterator = _StartsLater(lambda: kind(loader))


class _StartsLater:
    """An iterator that is created when its first batch is requested."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self._iterator: Any = None

    def __iter__(self) -> _StartsLater:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:
            state = torch.get_rng_state()  # torch draws a seed for its workers, a second time
            self._iterator = self.make()
            torch.set_rng_state(state)
        return next(self._iterator)
