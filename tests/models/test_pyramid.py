from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cb_mm.errors import UserError
from cb_mm.models import FeaturePyramid, ViTCB
from cb_mm.models.necks.doubling import Doubling

WIDTH = 12


def maps(*size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, WIDTH, *size, generator=generator) for _ in range(4)]


def test_layers_are_those_of_the_recipe():
    """Two 2×2 transposed convolutions with BN and GELU between; one; the map; a 2×2 max pool."""
    pyramid = FeaturePyramid(WIDTH).eval()
    four, two, one, half = pyramid.steps
    nn.init.normal_(four[1].running_mean)
    x = maps(6, 8)
    outs = pyramid(x)
    y = F.conv_transpose2d(x[0], four[0].weight, four[0].bias, stride=2)
    y = F.batch_norm(y, four[1].running_mean, four[1].running_var, four[1].weight, four[1].bias)
    y = F.conv_transpose2d(F.gelu(y), four[3].weight, four[3].bias, stride=2)
    torch.testing.assert_close(outs[0], y)
    torch.testing.assert_close(
        outs[1], F.conv_transpose2d(x[1], two[0].weight, two[0].bias, stride=2)
    )
    assert outs[2] is x[2]
    torch.testing.assert_close(outs[3], F.max_pool2d(x[3], 2))
    assert not list(one.parameters())
    assert not list(half.parameters())


def test_parameters():
    count = sum(p.numel() for p in FeaturePyramid(WIDTH).parameters())
    assert count == 3 * (4 * WIDTH * WIDTH + WIDTH) + 2 * WIDTH


@pytest.mark.parametrize(
    ('grid', 'half'), [((6, 8), (3, 4)), ((5, 7), (3, 4)), ((1, 1), (1, 1)), ((1, 4), (1, 2))]
)
def test_sizes(grid, half):
    height, width = grid
    outs = FeaturePyramid(WIDTH).eval()(maps(*grid))
    sizes = [tuple(out.shape[2:]) for out in outs]
    assert sizes == [(4 * height, 4 * width), (2 * height, 2 * width), grid, half]


def test_odd_maps_lose_no_cell():
    x = [torch.zeros(1, 1, 3, 3)]
    x[0][0, 0, 2, 2] = 5.0
    assert FeaturePyramid(1, (0.5,))(x)[0][0, 0, 1, 1] == 5.0


def test_norm_can_be_chosen():
    synced = FeaturePyramid(WIDTH, norm_cfg={'type': 'SyncBN'})
    assert isinstance(synced.steps[0][1], nn.SyncBatchNorm)
    grouped = FeaturePyramid(WIDTH, (4,), norm_cfg={'type': 'GN', 'num_groups': 3})
    assert isinstance(grouped.steps[0][1], nn.GroupNorm)


@pytest.mark.parametrize('wrong', [3, 0, -1, 'big'])
def test_unknown_scale(wrong):
    with pytest.raises(UserError, match=r'only 4, 2, 1 and 0\.5'):
        FeaturePyramid(WIDTH, (4, wrong))


def test_strides_follow_the_patch_size():
    assert ViTCB('tiny').out_strides == (4, 8, 16, 32)
    assert ViTCB('tiny', pyramid=False).out_strides == (16, 16, 16, 16)
    dino = ViTCB('vit_small_patch14_dinov2', out_indices=(2, 5), pyramid=(2, 0.5))
    assert dino.out_strides == (7, 28)
    outs = dino.eval()(torch.zeros(1, 3, 56, 84))
    assert [tuple(out.shape[2:]) for out in outs] == [(8, 12), (2, 3)]


def test_keys_have_their_own_prefix():
    plain, whole = ViTCB('tiny', pyramid=False), ViTCB('tiny')
    extra = set(whole.state_dict()) - set(plain.state_dict())
    assert extra
    assert all(key.startswith('pyramid.') for key in extra)


@pytest.mark.parametrize('size', [(6, 8), (1, 1), (5, 3)])
@pytest.mark.parametrize('memory_format', [torch.contiguous_format, torch.channels_last])
def test_doubling_is_a_transposed_convolution(size, memory_format):
    torch.manual_seed(0)
    fast = Doubling(WIDTH, 7).double()
    slow = nn.ConvTranspose2d(WIDTH, 7, kernel_size=2, stride=2).double()
    slow.load_state_dict(fast.state_dict())
    x = torch.randn(2, WIDTH, *size, dtype=torch.float64).to(memory_format=memory_format)
    weights = torch.randn(2, 7, 2 * size[0], 2 * size[1], dtype=torch.float64)
    found = []
    for module in (fast, slow):
        leaf = x.clone().requires_grad_()
        out = module(leaf)
        (out * weights).sum().backward()
        found.append([out.detach(), leaf.grad, module.weight.grad, module.bias.grad])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_doubling_leaves_half_precision_and_tracing_to_torch():
    torch.manual_seed(0)
    doubling = Doubling(WIDTH, WIDTH)
    x = torch.randn(1, WIDTH, 3, 4)
    with torch.autocast('cpu', torch.bfloat16):
        assert doubling(x).dtype == torch.bfloat16
    assert doubling(x).is_contiguous(memory_format=torch.channels_last)
    assert 'addmm' not in str(torch.jit.trace(doubling, x).inlined_graph)
