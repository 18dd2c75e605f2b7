"""Models on fake devices, for tests; skips where torch no longer has them as cb_mm uses them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cb_mm.apis.gpu_check import fake_device
from cb_mm.apis.gpu_check.cost import CostCounter, counting
from cb_mm.apis.gpu_check.fake_device import CUDA, SECOND_DEVICE, move_to_fake
from cb_mm.errors import UserError

__all__ = [
    'CUDA', 'SECOND_DEVICE', 'AllSelected', 'counted', 'forward_on_cuda', 'move_to_fake',
    'step_on_second', 'tensors_in',
]  # fmt: skip


@contextlib.contextmanager
def counted() -> Iterator[CostCounter]:
    """Fake tensors within the block, and the operations on them."""
    with fake(), counting() as counter:
        yield counter


@contextlib.contextmanager
def fake() -> Iterator[None]:
    """Fake tensors within the block."""
    try:
        with fake_device.fake_tensors():
            yield
    except UserError as error:
        if 'no fake tensors' in str(error):
            pytest.skip(str(error))
        raise


def forward_on_cuda(model: nn.Module, size: tuple[int, ...], half: torch.dtype | None) -> Any:
    """The output of a model on fake ``cuda:0``; with ``half``, under autocast."""
    with counted():
        move_to_fake(model, CUDA)
        images = torch.empty(size, device=CUDA)
        with fake_device.cuda_autocast(half) if half else contextlib.nullcontext():
            return model(images)


def step_on_second(model: nn.Module, size: tuple[int, ...], again: bool = False) -> Any:
    """Forward and backward on the fake second device; returns the output.

    Args:
        model: Moved there.
        size: Of its images.
        again: Whether it computes again in the backward pass. That is in another thread, which
            does not know of attention as one operation; and torch asks each device for its
            generators, which this one has not.
    """
    generators = mock.patch.object(torch, SECOND_DEVICE.partition(':')[0], SimpleNamespace(),
                                   create=True)  # fmt: skip
    with contextlib.ExitStack() as held:
        held.enter_context(fake() if again else counted())
        held.enter_context(generators if again else contextlib.nullcontext())
        move_to_fake(model, SECOND_DEVICE)
        output = model(torch.empty(size, device=SECOND_DEVICE))
        sum(x.float().sum() for x in tensors_in(output)).backward()
    return output


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)


class AllSelected(TorchDispatchMode):
    """Lets operations whose result depends on values, which fake tensors have not, select all.

    Every number is taken for one, every condition for true. `CostCounter` does so for masks.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition('::')[2]
        if name == 'nonzero':
            return args[0].new_empty((args[0].numel(), args[0].ndim), dtype=torch.long)
        if name == '_local_scalar_dense':
            return args[0].dtype is torch.bool or 1
        return function(*args, **(kwargs or {}))
