"""What the stand-ins share: one wide float type, and a backward pass from a forward formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def wide(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors in one float type of at least 32 bits.

    torchvision has no bfloat16 kernels, none for float16 on CPU, and box coordinates above 2048
    are not exact in float16.
    """
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return [t.to(dtype) for t in tensors]


def gradients(
    function: Callable[..., Tensor], inputs: Iterable[Tensor], grad_output: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients of ``function(*inputs)`` by all inputs.

    mmcv's autograd functions keep the inputs of an op, not its intermediate results, and call a
    second compiled op to go back. Its stand-in runs the formula again under autograd: twice the
    arithmetic, but no memory held between the two passes.
    """
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    with torch.enable_grad():
        output = function(*leaves)
    return torch.autograd.grad(output, leaves, grad_output.to(output.dtype))


def add_gradients(
    function: Callable[..., Tensor],
    inputs: Iterable[Tensor],
    grad_output: Tensor,
    totals: Iterable[Tensor],
) -> None:
    """Add the gradients of ``function(*inputs)`` to the tensors that mmcv has for them."""
    found = gradients(function, inputs, grad_output)
    for total, gradient in zip(totals, found, strict=True):
        total += gradient
