"""Counts what a GPU is asked to do: kernels, operations and bytes, without running them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from . import fake_device

aten = torch.ops.aten
#: Operations that only make room, another view or a decision, and start no kernel.
_FREE = {
    'empty', 'empty_like', 'empty_strided', 'new_empty', 'new_empty_strided', 'detach', 'alias',
    'lift_fresh', '_unsafe_view', 'set_', 'resize_', '_local_scalar_dense', 'device',
    'promote_types',
}  # fmt: skip
#: More than one kernel: the partial sums of a norm's gradients, and those of attention's.
_KERNELS = {
    'native_layer_norm_backward': 2, 'native_batch_norm_backward': 2, 'native_batch_norm': 2,
    'cudnn_batch_norm': 2, 'native_group_norm': 2, 'native_group_norm_backward': 2,
    'attention_backward': 3, 'nonzero': 4, 'topk': 2, 'index_put_': 2, 'nll_loss2d_forward': 2,
    'nll_loss_forward': 2, 'nll_loss2d_backward': 2, 'nll_loss_backward': 2,
}  # fmt: skip
#: Pick single numbers out of their first argument: 32 bytes move for each.
_SPARSE = {'gather', 'nll_loss2d_forward', 'nll_loss_forward', 'scatter_add_', 'scatter_',
           'index_select', 'index', 'embedding'}  # fmt: skip
_SECTOR = 32
#: A kernel of a ``_foreach_`` operation takes about as many numbers: 320 blocks of 65,536.
_FOREACH = 320 * 65536


@dataclass(frozen=True)
class Cost:
    """One operation: how many kernels it starts, what they compute and move."""

    name: str
    kernels: int
    operations: int  # a multiply-add is two
    bytes: int
    product: str  # 'convolution', 'product', or '' for neither
    itemsize: int  # bytes of a number of the result


class CostCounter(TorchDispatchMode):
    """Records the cost of every operation within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: list[Cost] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name.partition('::')[2]
        mask = next((i for i in args[1] if i is not None), None) if name == 'index' else None
        if mask is not None and mask.dtype is torch.bool:
            out = _all_selected(args[0], args[1], mask)
            self.costs.append(_cost('nonzero', function, (mask,), {}, out))
        else:
            out = function(*args, **kwargs)
        if name not in _FREE and not _is_view(function):
            self.costs.append(_cost(name, function, args, kwargs, out))
        return out

    @property
    def kernels(self) -> int:
        """Number of kernels started."""
        return sum(cost.kernels for cost in self.costs)


@contextlib.contextmanager
def counting() -> Iterator[CostCounter]:
    """Count within the block, attention as one operation."""
    with fake_device.FusedAttention(), CostCounter() as counter:
        yield counter


def _all_selected(x: Tensor, index: Any, mask: Tensor) -> Tensor:
    """Return ``x[..., mask]``, whose size depends on values, for a mask that selects everything.

    The host has to wait for this size; that time is not counted.
    """
    before = next(place for place, one in enumerate(index) if one is not None)
    after = x.shape[before + mask.ndim :]
    return x.new_empty((*x.shape[:before], mask.numel(), *after))


def _is_view(function: Any) -> bool:
    returns = function._schema.returns
    return any(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _cost(name: str, function: Any, args: Any, kwargs: Any, out: Any) -> Cost:
    inputs, outputs = list(_tensors([args, kwargs])), list(_tensors(out))
    if name in _SPARSE:
        picked = inputs[1].numel() if len(inputs) > 1 else outputs[0].numel()
        moved = _SECTOR * picked + sum(map(_bytes, inputs[1:]))
    else:
        moved = sum(map(_bytes, inputs)) + sum(map(_bytes, outputs))
    kernels = _KERNELS.get(name, 1)
    if name == 'convolution_backward':
        kernels = len(outputs)  # of the input, the weight, the bias
    elif name.startswith('_foreach'):
        kernels = -(-sum(x.numel() for x in args[0]) // _FOREACH) if args[0] else 0
    operations = _operations(name, function, args, kwargs, out)
    kind = ''
    if operations:
        kind = 'convolution' if 'convolution' in name else 'product'
    size = outputs[0].element_size() if outputs else 4
    return Cost(name, kernels, operations, moved, kind, size)


def _operations(name: str, function: Any, args: Any, kwargs: Any, out: Any) -> int:
    if name in ('attention_forward', 'attention_backward'):
        *batch, tokens, width = args[-1].shape
        products = 2 if name == 'attention_forward' else 5  # it computes one of them again
        return 2 * products * _product(batch) * tokens * tokens * width
    count = flop_registry.get(function.overloadpacket)
    return int(count(*args, **kwargs, out_val=out)) if count else 0


def _product(numbers: Any) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _bytes(x: Tensor) -> int:
    """Return the bytes of a tensor in memory: what is expanded is there once."""
    numbers = (size for size, stride in zip(x.shape, x.stride(), strict=True) if stride)
    return _product(numbers) * x.element_size()
