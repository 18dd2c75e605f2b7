"""Deformable convolution, v1 and v2 (with a mask), on torchvision's kernels.

DCN backbones, TOOD, RepPoints, VFNet, Cascade RPN, DyHead and SAC use it. Offsets and masks have
the same layout in both libraries; torchvision reads the numbers of groups from the shapes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchvision.ops import deform_conv2d

from .tensors import add_gradients, gradients, wide

Geometry = dict[str, tuple[int, int]]


def _geometry(options: dict[str, Any], stride: str, padding: str, dilation: str) -> Geometry:
    """Return torchvision's options from mmcv's, whose names differ between v1 and v2."""
    names = dict(stride=stride, padding=padding, dilation=dilation)
    pairs = {name: theirs.split() for name, theirs in names.items()}
    return {name: (options[y], options[x]) for name, (y, x) in pairs.items()}


def _version_1(options: dict[str, Any]) -> Geometry:
    return _geometry(options, 'dH dW', 'padH padW', 'dilationH dilationW')


def _version_2(options: dict[str, Any]) -> Geometry:
    return _geometry(options, 'stride_h stride_w', 'pad_h pad_w', 'dilation_h dilation_w')


def _convolve(
    features: Tensor, offset: Tensor, weight: Tensor, *rest: Tensor, geometry: Geometry
) -> Tensor:
    """Convolve; ``rest`` is empty (v1), the mask, or the mask and the bias (v2)."""
    features, offset, weight, *others = wide(features, offset, weight, *rest)
    mask, bias = (*others, None, None)[:2]
    return deform_conv2d(features, offset, weight, bias, mask=mask, **geometry)


def deform_conv_forward(
    features: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    **options: int,
) -> None:
    """Fill ``output`` (B, channels out, H, W) from ``features`` (B, channels in, H, W).

    ``offset`` (B, groups × kernel × 2, H, W) moves each tap of the kernel by (y, x).
    """
    output.copy_(_convolve(features, offset, weight, geometry=_version_1(options)))


def _version_1_gradients(
    features: Tensor, offset: Tensor, weight: Tensor, grad_output: Tensor, options: dict[str, int]
) -> tuple[Tensor, ...]:
    """Return the gradients by features, offset and weight.

    mmcv asks for them in two calls and torchvision computes all at once, so that a v1 layer does
    its backward arithmetic twice. Nothing that both calls see could carry the rest over safely.
    """

    def convolve(*inputs: Tensor) -> Tensor:
        return _convolve(*inputs, geometry=_version_1(options))

    return gradients(convolve, (features, offset, weight), grad_output)


def deform_conv_backward_input(
    features: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_features: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    **options: int,
) -> None:
    """Fill the gradients by features and offset."""
    found = _version_1_gradients(features, offset, weight, grad_output, options)
    grad_features.copy_(found[0])
    grad_offset.copy_(found[1])


def deform_conv_backward_parameters(
    features: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    **options: int,
) -> None:
    """Fill the gradient by the weight, which the output depends on linearly."""
    # The values of the weight are not given, nor needed: its gradient does not depend on them.
    found = _version_1_gradients(features, offset, grad_weight, grad_output, options)
    grad_weight.copy_(found[2])


def modulated_deform_conv_forward(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    with_bias: bool,
    **options: int,
) -> None:
    """Fill ``output``; ``mask`` (B, groups × kernel, H, W) weighs the taps of the kernel."""
    rest = (mask, bias) if with_bias else (mask,)
    output.copy_(_convolve(features, offset, weight, *rest, geometry=_version_2(options)))


def modulated_deform_conv_backward(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_features: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    with_bias: bool,
    **options: int,
) -> None:
    """Add the gradients to the tensors given for them."""
    inputs, totals = [features, offset, weight, mask], [grad_features, grad_offset, grad_weight]
    totals.append(grad_mask)
    if with_bias:
        inputs.append(bias)
        totals.append(grad_bias)

    def convolve(*tensors: Tensor) -> Tensor:
        return _convolve(*tensors, geometry=_version_2(options))

    add_gradients(convolve, inputs, grad_output, totals)


OPS = (
    deform_conv_forward,
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    modulated_deform_conv_forward,
    modulated_deform_conv_backward,
)
