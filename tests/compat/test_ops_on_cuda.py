"""The ops on CUDA tensors, faked, and in half precision: what models meet on a GPU."""

from __future__ import annotations

import pytest
import torch
from mmcv.ops import (
    PSAMask,
    deform_conv2d,
    modulated_deform_conv2d,
    sigmoid_focal_loss,
    softmax_focal_loss,
)
from mmcv.ops.carafe import carafe
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

from cb_mm.compat import mmcv_ops

pytestmark = pytest.mark.skipif(
    mmcv_ops.source() == 'compiled', reason='mmcv has its own compiled ops, which stay in place'
)


def every_op(device: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Call every op of this file once, on a device that need not exist; return the outputs."""

    def new(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, device=device, dtype=dtype, requires_grad=True)

    target = torch.zeros(4, dtype=torch.long, device=device)
    shapes = torch.zeros(2, 2, dtype=torch.long, device=device)
    locations, weights = new(1, 5, 2, 2, 3, 2), new(1, 5, 2, 2, 3)
    image, offset, mask, kernel = (
        new(2, 4, 5, 6),
        new(2, 18, 5, 6),
        new(2, 9, 5, 6),
        new(4, 4, 3, 3),
    )
    return [
        sigmoid_focal_loss(new(4, 3), target, 2.0, 0.25, None, 'mean'),
        softmax_focal_loss(new(4, 3), target, 2.0, 0.25, None, 'mean'),
        MultiScaleDeformableAttnFunction.apply(
            new(1, 20, 2, 3), shapes, shapes[:, 0], locations, weights, 64
        ),
        deform_conv2d(image, offset, kernel, 1, 1),
        modulated_deform_conv2d(image, offset, mask, kernel, new(4), 1, 1),
        carafe(image, new(2, 9, 10, 12), 3, 1, 2),
        PSAMask('distribute', (3, 3))(new(2, 9, 5, 6)),
    ]


def test_every_op_on_cuda():
    """Shapes and devices are computed as on a GPU: a constant left on the CPU would be an error."""
    fake = pytest.importorskip('torch._subclasses.fake_tensor', reason='no fake tensors here')
    with fake.FakeTensorMode():
        outputs = every_op('cuda')
        assert {output.device.type for output in outputs} == {'cuda'}
        with pytest.raises(RuntimeError, match='device'):
            outputs[3] + torch.zeros(1, 1, 1, 6)


def test_every_op_trains_on_another_device():
    """Torch runs no backward pass on fake CUDA without CUDA's libraries; on 'meta' it does."""
    for output in every_op('meta'):
        output.sum().backward()
        assert output.device.type == 'meta'


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    for output in every_op('cpu', dtype):
        assert output.dtype == dtype
        output.float().sum().backward()


def test_the_loss_that_mmdet_takes_on_cuda():
    fake = pytest.importorskip('torch._subclasses.fake_tensor', reason='no fake tensors here')
    from mmdet.models.losses.focal_loss import sigmoid_focal_loss as loss_on_cuda

    with fake.FakeTensorMode():
        target = torch.ones(4, dtype=torch.long, device='cuda')
        assert loss_on_cuda(torch.zeros(4, 3, device='cuda'), target).device.type == 'cuda'
