"""Models on a device that is not there: shapes, types and devices without numbers.

torch's fake tensors know everything about a tensor but its values, so that a forward pass on
``cuda:0`` runs on any machine. The autograd engine asks the driver for streams, and so a backward
pass on fake CUDA tensors needs a GPU; it runs on `SECOND_DEVICE`, which has neither a driver nor
kernels: like CUDA, it is not the CPU, and that is all our code asks. Its autocast is the one below.

Everything that torch does not promise to keep is used here and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from ...errors import UserError

CUDA = 'cuda:0'
SECOND_DEVICE = 'lazy:0'


@lru_cache(maxsize=1)
def _mode() -> Any:
    """Return the one mode of this process: tensors of two modes cannot meet in one operation."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode()
        with mode:
            torch.ones(1, device=SECOND_DEVICE, requires_grad=True).sum().backward()
            torch.ones(1, device=CUDA).sum()
    except Exception as error:  # whatever another release of torch raises
        raise UserError(
            f'torch {torch.__version__} has no fake tensors as cb_mm uses them '
            f'({type(error).__name__}: {error}).'
        ) from error
    return mode


@contextlib.contextmanager
def fake_tensors() -> Iterator[None]:
    """Let every tensor made within the block have no values; a real one there is an error."""
    with _mode():
        yield


def move_to_fake(model: nn.Module, device: str) -> nn.Module:
    """Replace parameters and buffers by fake ones on a device; other tensors stay what they are.

    That is what ``model.to(device)`` does: a constant that is neither parameter nor buffer stays
    behind, and fails at the first operation, as it would on a GPU.
    """
    with fake_tensors():
        for module in model.modules():
            for name, value in module._parameters.items():
                if value is not None:
                    trained = value.requires_grad
                    module._parameters[name] = nn.Parameter(_fake(value, device), trained)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = _fake(value, device)
    return model


def _fake(value: Tensor, device: str) -> Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)


@contextlib.contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """Switch CUDA's autocast on, which `torch.autocast` refuses where there is no GPU."""
    before = torch.is_autocast_enabled('cuda'), torch.get_autocast_dtype('cuda')
    torch.set_autocast_enabled('cuda', True)
    torch.set_autocast_dtype('cuda', dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled('cuda', before[0])
        torch.set_autocast_dtype('cuda', before[1])


#: CUDA's autocast, for the functions that our models call: products are done in half precision,
#: these in float32, some by a cast of their own; the rest takes what it is given.
_HALF = {
    F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose2d, F.scaled_dot_product_attention,
    torch.conv2d, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum,
    Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.mm,
}  # fmt: skip
_FULL = {
    F.layer_norm, F.group_norm, F.cross_entropy, F.nll_loss, F.binary_cross_entropy_with_logits,
    F.mse_loss, F.smooth_l1_loss, F.interpolate, torch.pow, torch.exp, torch.log, torch.norm,
    Tensor.pow, Tensor.exp, Tensor.log, Tensor.norm,
}  # fmt: skip
_FULL_BY_THEMSELVES = {
    F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, torch.sum, torch.cumsum,
    torch.prod, Tensor.softmax, Tensor.log_softmax, Tensor.sum, Tensor.cumsum, Tensor.prod,
}  # fmt: skip


class SecondDeviceAutocast(TorchFunctionMode):
    """CUDA's autocast on `SECOND_DEVICE`; a test compares the operations of both."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self._casts: dict[Tensor, Tensor] = {}

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _HALF:
            return function(*self._cast(args, self.dtype), **self._cast(kwargs, self.dtype))
        if function in _FULL:
            full = torch.float32
            return function(*self._cast(args, full), **self._cast(kwargs, full))
        if function in _FULL_BY_THEMSELVES and args[0].dtype is self.dtype:
            return function(*args, **{'dtype': torch.float32, **kwargs})
        return function(*args, **kwargs)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Tensor):
            if not value.is_floating_point() or value.dtype in (dtype, torch.float64):
                return value
            if not (value.is_leaf and value.requires_grad and dtype is self.dtype):
                return value.to(dtype)
            if value not in self._casts:  # a weight is cast once a pass
                self._casts[value] = value.to(dtype)
            return self._casts[value]
        if isinstance(value, (tuple, list)):
            return type(value)(self._cast(one, dtype) for one in value)
        if isinstance(value, dict):
            return {key: self._cast(one, dtype) for key, one in value.items()}
        return value


class FusedAttention(TorchFunctionMode):
    """Attention as one fused operation each way, as on a GPU; elsewhere torch takes it apart."""

    def __torch_function__(
        self, function: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention and kwargs.get('attn_mask') is None:
            return _Attention.apply(*args[:3])
        return function(*args, **kwargs)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = attention_forward(query, key, value)
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(attention_backward(grad.contiguous(), *ctx.saved_tensors))


@torch.library.custom_op('cb_mm::attention_forward', mutates_args=())
def attention_forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Stand for a GPU's fused attention; it is counted and never computed."""
    raise NotImplementedError


@torch.library.custom_op('cb_mm::attention_backward', mutates_args=())
def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Stand for its gradient."""
    raise NotImplementedError


@attention_forward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.empty_like(query)


@attention_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
