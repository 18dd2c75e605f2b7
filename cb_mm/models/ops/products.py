"""Matrix products by the library that is fast on this processor.

torch computes float32 products on x86 with MKL, which leaves half of the rate of AMD's processors
with AVX-512 unused; oneDNN, which torch has for convolutions, does not. Measured on one core of an
EPYC, 512 × 512 weights: 110 GFLOP/s with MKL, 240 with oneDNN. On Intel's, MKL is as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows from which a product is worth a call of its own, and the copy of its result.
_ROWS = 64
_LONGEST_SUM = 256
# Channels from which the gradient of the weights is worth two transposed copies for oneDNN.
_CHANNELS = 192


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (…, C) times weight (K, C), as `torch.nn.functional.linear`, gradients included."""
    plain = not is_watched(x, weight) and weight.dtype == x.dtype
    if not plain or not _by_onednn(x, x.numel() // max(x.shape[-1], 1)):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Product.apply(x, weight, bias)
    return _onednn(x, weight, bias)


class _Product(torch.autograd.Function):
    """`product` with its gradients, which are products too; in the form that torch.func takes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _onednn(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()  # the gradient of a sum is a single number, expanded
        rows = grad.view(-1, grad.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = _onednn(grad, weight.T.contiguous(), None)
        if ctx.needs_input_grad[1]:
            grad_weight = outer_product(rows, x.reshape(-1, x.shape[-1]))
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias


def outer_product(x: Tensor, y: Tensor) -> Tensor:
    """Return the transpose of x (T, K) times y (T, C), without gradients."""
    if _by_onednn(x, len(x)) and min(x.shape[1], y.shape[1]) >= _CHANNELS:
        return _onednn(x.T.contiguous(), y.T.contiguous(), None)
    return x.T @ y


def products(x: Tensor, weights: Sequence[Tensor], out: Tensor, add: bool = False) -> None:
    """Write the products of x (n, T, C) and its weights to out (n, T, K), or add them.

    Args:
        x: One matrix per product.
        weights: (n, C_i, K), the C_i being a split of C (`longest_sum`).
        out: Room for the result.
        add: Add to what is there.
    """
    # With weights in another order, oneDNN is slower by orders of magnitude.
    onednn = _by_onednn(x, x.shape[1]) and all(w.transpose(1, 2).is_contiguous() for w in weights)
    for part, weight in zip(x.split([w.shape[1] for w in weights], dim=2), weights, strict=True):
        if onednn:
            for some, one, place in zip(part, weight.transpose(1, 2), out, strict=True):
                found = _onednn(some, one, None)
                place.add_(found) if add else place.copy_(found)
        elif add:
            out.baddbmm_(part, weight)
        else:
            torch.bmm(part, weight, out=out)
        add = True


def outer_products(x: Tensor, y: Tensor, onto: Tensor) -> None:
    """Add the transpose of x (n, T, K) times y (n, T, C) to (n, K, C), without gradients."""
    if not mkl_is_slow():
        onto.baddbmm_(x.transpose(1, 2), y)
        return
    for some, other, place in zip(x, y, onto, strict=True):
        place.add_(outer_product(some, other))


def longest_sum(channels: int) -> int:
    """Return how many channels a product should add up at most.

    oneDNN adds them one after another, so that rounding grows with their number: at 512 it was
    twice that of MKL, which adds up parts. Weights are to be contiguous for it in each part.
    """
    return min(channels, _LONGEST_SUM) if mkl_is_slow() else channels


def counted() -> dict[Any, Callable[..., int]]:
    """Return how many operations oneDNN's product takes: torch's counter does not know it."""
    name = getattr(torch.ops.mkldnn, '_linear_pointwise', None)

    def operations(x: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
        return 2 * math.prod(x) * weight[0]

    return {} if name is None else {name: operations}


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')


def is_watched(*tensors: Tensor) -> bool:
    """Return whether something other than plain autograd looks at what is computed."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled('cpu')
        or any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors)
    )


def _by_onednn(x: Tensor, rows: int) -> bool:
    plain = x.device.type == 'cpu' and x.dtype == torch.float32
    return plain and rows >= _ROWS and bool(torch.backends.mkldnn.enabled) and mkl_is_slow()


@lru_cache(maxsize=1)
def mkl_is_slow() -> bool:
    """Return whether this is a processor with AVX-512 that is not Intel's, under MKL.

    A rule, and no race of the two: a race would round differently from one run to the next.
    """
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    if not hasattr(torch.ops.mkldnn, '_linear_pointwise'):  # torch does not promise that name
        return False
    try:
        maker = Path('/proc/cpuinfo').read_text().partition('vendor_id')[2].split()[1]
    except (OSError, IndexError):  # not Linux
        return False
    return torch.backends.cpu.get_cpu_capability() == 'AVX512' and maker != 'GenuineIntel'
