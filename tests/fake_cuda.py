"""Models on fake devices, for tests; skips where torch no longer has them as cb_mm uses them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from cb_mm.apis.gpu_check import fake_device
from cb_mm.apis.gpu_check.cost import CostCounter, counting
from cb_mm.apis.gpu_check.fake_device import CUDA, SECOND_DEVICE, move_to_fake
from cb_mm.errors import UserError

__all__ = ['CUDA', 'SECOND_DEVICE', 'counted', 'forward_on_cuda', 'move_to_fake', 'step_on_second']


@contextlib.contextmanager
def counted() -> Iterator[CostCounter]:
    """Fake tensors within the block, and the operations on them."""
    try:
        tensors = fake_device.fake_tensors()
        with tensors, counting() as counter:
            yield counter
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


def step_on_second(model: nn.Module, size: tuple[int, ...]) -> Any:
    """Forward and backward on the fake second device; returns the output."""
    with counted():
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
