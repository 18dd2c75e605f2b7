"""Autocast to half precision on any device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.device import get_device
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn


@OPTIM_WRAPPERS.register_module()
class Bfloat16OptimWrapper(OptimWrapper):
    """OptimWrapper that runs forward and loss under bfloat16 autocast.

    mmengine's AmpOptimWrapper refuses to start without a GPU. bfloat16 has float32's range, so
    that the loss needs no scaling.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Wrap what mmengine runs inside in autocast."""
        device = get_device().split(':')[0]
        with super().optim_context(model), torch.autocast(device, torch.bfloat16):
            yield


@OPTIM_WRAPPERS.register_module()
class Float16CpuOptimWrapper(AmpOptimWrapper):
    """mmengine's AmpOptimWrapper for a CPU, where it refuses to start.

    float16 has a small range: the loss is scaled so that small gradients do not become zero.
    """

    def __init__(self, **kwargs: object) -> None:
        OptimWrapper.__init__(self, **kwargs)  # the next class in line asks for a GPU
        self._scale_update_param = None
        self.loss_scaler = torch.amp.GradScaler('cpu')

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Wrap what mmengine runs inside in autocast."""
        with OptimWrapper.optim_context(self, model), torch.autocast('cpu', torch.float16):
            yield


def avoid_broken_amx() -> bool:
    """Keep oneDNN off AMX on a CPU whose AMX instructions are announced but illegal.

    Some virtual machines are like that, and a bfloat16 product there ends the process silently.
    Only a trial in a separate process can tell. Must run before the first bfloat16 product; returns
    True if AMX was switched off.
    """
    if 'ONEDNN_MAX_CPU_ISA' in os.environ:
        return False
    trial = (
        'import torch; x = torch.ones(2, 10, 48); layer = torch.nn.Linear(48, 48)\n'
        "with torch.autocast('cpu', torch.bfloat16): layer(x)"
    )
    if subprocess.run([sys.executable, '-c', trial], capture_output=True).returncode == 0:
        return False
    os.environ['ONEDNN_MAX_CPU_ISA'] = 'AVX512_CORE_BF16'
    return True
