"""Focal loss, CARAFE, PSA's mask and masked convolution, against loops over their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from mmcv.ops import CARAFE, MaskedConv2d, PSAMask, sigmoid_focal_loss, softmax_focal_loss
from mmcv.ops.carafe import carafe

from cb_mm.compat import mmcv_ops

pytestmark = pytest.mark.skipif(
    mmcv_ops.source() == 'compiled', reason='mmcv has its own compiled ops, which stay in place'
)


def doubles(rng, *shape, **options):
    return torch.tensor(rng.standard_normal(shape), dtype=torch.float64, **options)


@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
@pytest.mark.parametrize('weighted', [False, True])
def test_sigmoid_focal_loss(gamma, weighted):
    rng = np.random.default_rng(0)
    logits, target = doubles(rng, 6, 3) * 4, torch.tensor([0, 1, 2, 3, -1, 1])  # 3, -1: background
    weight = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64) if weighted else None
    expected = np.zeros((6, 3))
    for row, label in enumerate(target.tolist()):
        factor = float(weight[label]) if weighted and 0 <= label < 3 else 1.0
        for column in range(3):
            p = 1 / (1 + math.exp(-logits[row, column]))
            positive, negative = (1 - p) ** gamma * math.log(p), p**gamma * math.log(1 - p)
            loss = -0.3 * positive if column == label else -0.7 * negative
            expected[row, column] = factor * loss
    for reduction, value in (
        ('none', expected),
        ('sum', expected.sum()),
        ('mean', expected.sum() / 6),
    ):
        loss = sigmoid_focal_loss(logits, target, gamma, 0.3, weight, reduction)
        np.testing.assert_allclose(loss, value, rtol=1e-9)
    logits.requires_grad_()
    run = lambda x: sigmoid_focal_loss(x, target, gamma, 0.3, weight, 'mean')  # noqa: E731
    assert torch.autograd.gradcheck(run, logits)


def test_sigmoid_focal_loss_equals_mmdet_on_cpu_even_at_large_logits():
    """RetinaNet trains with the same loss on both devices; mmdet's own is what CPU takes."""
    from mmdet.models.losses.focal_loss import py_sigmoid_focal_loss

    logits = torch.tensor([[-90.0, 0.5], [90.0, -0.5], [40.0, -40.0]])
    target, one_hot = torch.tensor([0, 2, 1]), torch.tensor([[1, 0], [0, 0], [0, 1]])
    gradients = []
    for loss in (
        lambda x: sigmoid_focal_loss(x, target, 2.0, 0.25, None, 'none'),
        lambda x: py_sigmoid_focal_loss(x, one_hot, None, 2.0, 0.25, 'none'),
    ):
        x = logits.clone().requires_grad_()
        loss(x).sum().backward()
        gradients += [loss(x).detach(), x.grad]
    torch.testing.assert_close(gradients[0], gradients[2])
    torch.testing.assert_close(gradients[1], gradients[3])
    assert gradients[1].isfinite().all()


@pytest.mark.parametrize('weighted', [False, True])
def test_softmax_focal_loss(weighted):
    rng = np.random.default_rng(1)
    logits, target = doubles(rng, 5, 4), torch.tensor([0, 3, -1, 2, 1])
    weight = torch.tensor([0.5, 2.0, 3.0, 1.0], dtype=torch.float64) if weighted else None
    shares = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    expected = [
        -0.3 * (1 - row[c]) ** 2 * math.log(row[c]) * (float(weight[c]) if weighted else 1)
        if c >= 0
        else 0.0
        for row, c in zip(shares, target.tolist(), strict=True)
    ]
    loss = softmax_focal_loss(logits, target, 2.0, 0.3, weight, 'none')
    np.testing.assert_allclose(loss, expected, rtol=1e-9)
    logits.requires_grad_()
    run = lambda x: softmax_focal_loss(x, target, 2.0, 0.3, weight, 'mean')  # noqa: E731
    assert torch.autograd.gradcheck(run, logits)


@pytest.mark.parametrize(('kernel', 'groups', 'scale'), [(3, 1, 2), (5, 2, 1), (1, 2, 3)])
def test_carafe(kernel, groups, scale):
    rng = np.random.default_rng(5)
    features = doubles(rng, 2, 4, 3, 4)
    masks = doubles(rng, 2, groups * kernel**2, 3 * scale, 4 * scale)
    expected = np.zeros((2, 4, 3 * scale, 4 * scale))
    for b, c, y, x in np.ndindex(*expected.shape):
        for i, j in np.ndindex(kernel, kernel):
            row, column = y // scale + i - kernel // 2, x // scale + j - kernel // 2
            if 0 <= row < 3 and 0 <= column < 4:
                tap = (c // (4 // groups) * kernel + i) * kernel + j
                expected[b, c, y, x] += float(features[b, c, row, column] * masks[b, tap, y, x])
    np.testing.assert_allclose(CARAFE(kernel, groups, scale)(features, masks), expected, atol=1e-12)
    inputs = features.requires_grad_(), masks.requires_grad_()
    run = lambda *tensors: carafe(*tensors, kernel, groups, scale)  # noqa: E731
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize('kind', ['collect', 'distribute'])
@pytest.mark.parametrize('size', [(3, 5), (9, 7)])
def test_psa_mask(kind, size):
    height, width = 4, 3
    masks = doubles(np.random.default_rng(6), 2, size[0] * size[1], height, width)
    expected = np.zeros((2, height * width, height, width))
    for b, i, j, y, x in np.ndindex(2, *size, height, width):
        row, column = y + i - (size[0] - 1) // 2, x + j - (size[1] - 1) // 2
        if 0 <= row < height and 0 <= column < width:
            value = float(masks[b, i * size[1] + j, y, x])
            if kind == 'collect':
                expected[b, row * width + column, y, x] = value
            else:
                expected[b, y * width + x, row, column] = value
    layer = PSAMask(kind, size)
    np.testing.assert_array_equal(layer(masks), expected)
    assert torch.autograd.gradcheck(layer, masks.requires_grad_(), fast_mode=True)


def test_masked_convolution():
    layer, x = MaskedConv2d(3, 5, 3, padding=1).eval(), torch.randn(1, 3, 6, 7)
    mask = torch.rand(1, 6, 7) > 0.6
    with torch.no_grad():
        expected = torch.nn.functional.conv2d(x, layer.weight, layer.bias, padding=1) * mask
        torch.testing.assert_close(layer(x, mask), expected)
        assert not layer(x, torch.zeros_like(mask)).any()
