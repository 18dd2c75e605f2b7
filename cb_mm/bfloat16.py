"""bfloat16 autocast on any device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.device import get_device
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn


@OPTIM_WRAPPERS.register_module()
class Bfloat16OptimWrapper(OptimWrapper):
    """Runs forward and loss under bfloat16 autocast.

    mmengine's AmpOptimWrapper refuses to start without a GPU. bfloat16 has float32's range, so
    that the loss needs no scaling.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast around what mmengine runs inside."""
        device = get_device().split(':')[0]
        with super().optim_context(model), torch.autocast(device, torch.bfloat16):
            yield
