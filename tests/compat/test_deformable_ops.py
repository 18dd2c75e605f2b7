"""Deformable attention and convolution, against loops over their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mmcv.ops import (
    DeformConv2dPack,
    ModulatedDeformConv2dPack,
    deform_conv2d,
    modulated_deform_conv2d,
)
from mmcv.ops.multi_scale_deform_attn import (
    MultiScaleDeformableAttnFunction,
    multi_scale_deformable_attn_pytorch,
)

from cb_mm.compat import mmcv_ops

pytestmark = pytest.mark.skipif(
    mmcv_ops.source() == 'compiled', reason='mmcv has its own compiled ops, which stay in place'
)


def doubles(rng, *shape, **options):
    return torch.tensor(rng.standard_normal(shape), dtype=torch.float64, **options)


def sample(image: np.ndarray, y: float, x: float) -> float:
    """Return the bilinear value of an image (H, W) at a point; it is zero outside."""
    top, left, total = math.floor(y), math.floor(x), 0.0
    for row in (top, top + 1):
        for column in (left, left + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


SHAPES = [(3, 4), (2, 3), (1, 1)]


def attention_inputs(rng, queries=3, heads=2, points=2):
    pixels = sum(h * w for h, w in SHAPES)
    value = doubles(rng, 2, pixels, heads, 3)
    locations = torch.tensor(rng.uniform(-0.3, 1.3, (2, queries, heads, len(SHAPES), points, 2)))
    weights = torch.tensor(rng.uniform(0, 1, (2, queries, heads, len(SHAPES), points)))
    shapes = torch.tensor(SHAPES)
    starts = torch.cat([shapes.new_zeros(1), shapes.prod(1).cumsum(0)[:-1]])
    return value, shapes, starts, locations, weights


def test_deformable_attention():
    value, shapes, starts, locations, weights = attention_inputs(np.random.default_rng(2))
    found = MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights, 64)
    expected = np.zeros((2, 3, 2, 3))
    for b, q, head, level, p in np.ndindex(*weights.shape):
        height, width = SHAPES[level]
        x, y = locations[b, q, head, level, p].tolist()
        for channel in range(3):
            grid = value[b, starts[level] : starts[level] + height * width, head, channel]
            at = sample(grid.view(height, width).numpy(), y * height - 0.5, x * width - 0.5)
            expected[b, q, head, channel] += at * float(weights[b, q, head, level, p])
    np.testing.assert_allclose(found, expected.reshape(2, 3, 6), atol=1e-12)
    # mmcv's own PyTorch version, which models take on CPU.
    reference = multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)
    torch.testing.assert_close(found, reference)


def test_deformable_attention_gradient():
    value, shapes, starts, *rest = attention_inputs(np.random.default_rng(3), queries=2, points=1)
    for tensor in (value, *rest):
        tensor.requires_grad_()

    def run(value, locations, weights):
        return MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights, 64)

    assert torch.autograd.gradcheck(run, (value, *rest))


def direct_deform_conv(image, offset, weight, mask, stride, padding, dilation, groups, shifts):
    """Convolve with moved taps: ``groups`` of channels, ``shifts`` groups of offsets."""
    channels_out, channels_in, kernel_h, kernel_w = weight.shape
    batch, channels = image.shape[:2]
    out = np.zeros((batch, channels_out, *offset.shape[2:]))
    for b, o, y, x in np.ndindex(*out.shape):
        first = o // (channels_out // groups) * channels_in
        for c, i, j in np.ndindex(channels_in, kernel_h, kernel_w):
            channel = first + c
            tap = (channel // (channels // shifts) * kernel_h + i) * kernel_w + j
            dy, dx = offset[b, 2 * tap : 2 * tap + 2, y, x]
            row = y * stride[0] - padding[0] + i * dilation[0] + dy
            column = x * stride[1] - padding[1] + j * dilation[1] + dx
            value = sample(image[b, channel], row, column) * weight[o, c, i, j]
            out[b, o, y, x] += value * (1 if mask is None else mask[b, tap, y, x])
    return out


CONVOLUTIONS = [
    dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, shifts=1, kernel=(3, 3)),
    dict(stride=(2, 1), padding=(2, 0), dilation=(1, 2), groups=2, shifts=1, kernel=(3, 2)),
    dict(stride=(1, 2), padding=(0, 1), dilation=(2, 1), groups=1, shifts=2, kernel=(2, 3)),
]


def convolution_inputs(rng, stride, padding, dilation, groups, shifts, kernel):
    image, weight = doubles(rng, 2, 4, 5, 6), doubles(rng, 4, 4 // groups, *kernel)
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip((5, 6), padding, dilation, kernel, stride, strict=True)
    ]
    offset = doubles(rng, 2, 2 * shifts * math.prod(kernel), *size)
    mask = torch.tensor(rng.uniform(0, 1, (2, shifts * math.prod(kernel), *size)))
    return image, offset, weight, mask, (stride, padding, dilation, groups, shifts)


@pytest.mark.parametrize('case', CONVOLUTIONS)
@pytest.mark.parametrize('version', [1, 2])
def test_deformable_convolution(case, version):
    rng = np.random.default_rng(4)
    image, offset, weight, mask, options = convolution_inputs(rng, **case)
    bias = doubles(rng, 4)
    expected = direct_deform_conv(
        image.numpy(),
        offset.numpy(),
        weight.numpy(),
        None if version == 1 else mask.numpy(),
        *options,
    )
    if version == 1:
        inputs = (image, offset, weight)
        run = lambda *tensors: deform_conv2d(*tensors, *options)  # noqa: E731
    else:
        inputs = (image, offset, mask, weight, bias)
        run = lambda *tensors: modulated_deform_conv2d(*tensors, *options)  # noqa: E731
        without_bias = modulated_deform_conv2d(*inputs[:4], None, *options)
        np.testing.assert_allclose(without_bias, expected, atol=1e-12)
        expected = expected + bias.numpy()[:, None, None]
    np.testing.assert_allclose(run(*inputs), expected, atol=1e-12)
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize('layer', [DeformConv2dPack, ModulatedDeformConv2dPack])
def test_a_new_deformable_layer_is_a_convolution(layer):
    """Offsets start at zero and masks at one half."""
    conv = layer(4, 6, 3, padding=1, bias=False)
    x = torch.randn(2, 4, 7, 5)
    plain = torch.nn.functional.conv2d(x, conv.weight, padding=1)
    scale = 1.0 if layer is DeformConv2dPack else 0.5
    torch.testing.assert_close(conv(x), scale * plain, atol=1e-5, rtol=1e-4)
