"""The precision of a run: what numbers are kept as, and how exactly products are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device

from ...errors import UserError, in_users_words
from .half_precision import avoid_broken_amx

PRECISIONS = {
    'fp32': 'float32',
    'tf32': 'float32, products in TF32',
    'bf16': 'bfloat16 autocast, weights in float32',
    'fp16': 'float16 autocast, weights in float32',
}
_BACKENDS: tuple[Any, Any] = (torch.backends.cuda.matmul, torch.backends.cudnn)
_HALF = {'bf16': torch.bfloat16, 'fp16': torch.float16}


@dataclass(frozen=True)
class Precision:
    """One of `PRECISIONS` on one device.

    Attributes:
        name: Such as 'bf16'.
        device: 'cuda', 'cpu' or another type.
        chosen: Whether the user chose it; otherwise it is the default.
    """

    name: str
    device: str
    chosen: bool = True

    @property
    def half(self) -> torch.dtype | None:
        """The type that autocast casts to; None without autocast."""
        return _HALF.get(self.name)

    def __str__(self) -> str:
        """Describe it, and how to choose another one."""
        other = '' if self.chosen else f'; the default on {self.device.upper()}, see `precision`'
        return f'{self.name} ({PRECISIONS[self.name]}{other})'

    @contextlib.contextmanager
    def products(self) -> Iterator[None]:
        """Let CUDA compute float32 products and convolutions in TF32, or not, within the block.

        Under autocast few of them are left, and none needs to be more exact than the others.
        """
        if self.device != 'cuda':
            yield
            return
        before = _tf32_settings()
        for backend in _BACKENDS:
            backend.allow_tf32 = self.name != 'fp32'
        try:
            yield
        finally:
            for backend, name, value in before:
                setattr(backend, name, value)

    def autocast(self) -> contextlib.AbstractContextManager:
        """Cast to half precision within the block, if that is what this is."""
        if self.half is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device, self.half)


def choose_precision(name: str | None, amp: bool = False) -> Precision | None:
    """Return the precision that the options ask for; None if they leave it open.

    Args:
        name: One of `PRECISIONS`, or None.
        amp: Whether the older option was given: float16 on a GPU, bfloat16 on a CPU.

    Raises:
        UserError: It does not exist, or not on this device.
    """
    device = get_device().partition(':')[0]
    if amp:
        meant = 'fp16' if device == 'cuda' else 'bf16'
        if name not in (None, meant):
            raise UserError(f'`amp` means `precision` {meant} here; {name} was given.')
        name = meant
    if name is None:
        return None
    if name not in PRECISIONS:
        raise UserError(f'`precision` {name} is not one of {", ".join(PRECISIONS)}.')
    _require_support(name, device)
    if name in _HALF and device == 'cpu' and avoid_broken_amx():
        notice = f'`precision` {name}: the AMX instructions of this CPU do not work; not used.'
        print(in_users_words(notice))
    return Precision(name, device)


def default_precision() -> Precision:
    """Return what training runs in when no one asks: the fastest that keeps float32's range.

    In TF32 the convolutions already run by torch's own default; `benchmarks/roofline.py` shows what
    products in TF32 gain.
    """
    device = get_device().partition(':')[0]
    tf32 = device == 'cuda' and _has_tf32()
    return Precision('tf32' if tf32 else 'fp32', device, chosen=False)


def training_precision(config: Config, name: str | None, amp: bool = False) -> Precision:
    """Return the precision of a training run, and let the config's optimizer follow it."""
    chosen = choose_precision(name, amp)
    if chosen is None:
        return default_precision()
    use_half(config, chosen)
    return chosen


def describe_precision(precision: Precision, config: Config) -> str:
    """Return the words of the start report; a config can bring an autocast of its own."""
    wrapper = config.optim_wrapper.get('type', 'OptimWrapper')
    own = not precision.chosen and wrapper != 'OptimWrapper'
    return f"{precision}, under the config's {wrapper}" if own else str(precision)


def use_half(config: Config, precision: Precision) -> None:
    """Let the optimizer's wrapper of a config cast to half precision, if that is asked for."""
    if precision.half is None:
        return
    settings = config.optim_wrapper
    if settings.get('type', 'OptimWrapper') != 'OptimWrapper':
        raise UserError(
            f'`precision` {precision.name} works with OptimWrapper; the config has {settings.type}.'
        )
    if precision.name == 'bf16':  # it has float32's range: the loss needs no scaling
        settings.type = 'Bfloat16OptimWrapper'
    elif precision.device == 'cpu':
        settings.type = 'Float16CpuOptimWrapper'
    else:
        settings.type, settings.dtype, settings.loss_scale = 'AmpOptimWrapper', 'float16', 'dynamic'


def _require_support(name: str, device: str) -> None:
    if name == 'tf32' and (device != 'cuda' or not _has_tf32()):
        found = torch.cuda.get_device_name() if device == 'cuda' else device
        raise UserError(
            '`precision` tf32 needs an NVIDIA GPU of 2020 (Ampere) or later; the device is '
            f'{found}. Use fp32.'
        )
    if name == 'bf16' and device == 'cuda' and not torch.cuda.is_bf16_supported(False):
        raise UserError(
            f'`precision` bf16: {torch.cuda.get_device_name()} does not compute in bfloat16. '
            'Use fp16.'
        )
    if name in _HALF and not torch.amp.is_autocast_available(device):
        raise UserError(f'`precision` {name}: torch has no autocast on {device}. Use fp32.')


def _has_tf32() -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 8


def _tf32_settings() -> list[tuple[Any, str, Any]]:
    """Return the settings to restore later: backend, attribute, value.

    torch has an older and a newer set of names for them, and refuses to read the older one where
    a program has used the newer.
    """
    matmul, cudnn = _BACKENDS
    try:
        return [(one, 'allow_tf32', one.allow_tf32) for one in _BACKENDS]
    except RuntimeError:
        newer = (matmul, cudnn.conv, cudnn.rnn)
        return [(one, 'fp32_precision', one.fp32_precision) for one in newer]
