"""ViTDet's options of ViTCB: attention in windows, and the simple pyramid."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from cb_mm.attention import capture
from cb_mm.errors import UserError
from cb_mm.models import SimplePyramid, ViTCB

ARCH = dict(embed_dim=24, depth=4, num_heads=2, img_size=64, reg_tokens=2)


def vit(**options) -> ViTCB:
    torch.manual_seed(0)
    options = {'out_indices': (0, 1, 2, 3), 'pyramid': False, **options}
    return ViTCB(ARCH, **options).eval()


def image(height: int, width: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('size', [(64, 64), (48, 80), (50, 70)])
def test_a_window_over_the_whole_map_is_global_attention(size):
    with torch.no_grad():
        expected, found = vit()(image(*size)), vit(window=5, global_blocks=[])(image(*size))
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def softmax_by_hand(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    logits = q @ k.T
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize('size', [(64, 64), (80, 112), (50, 70), (16, 100)])
def test_windows_by_hand(size):
    """Every patch with the patches of its window and the prefix; also where the grid is cut off."""
    model = vit(window=2, global_blocks=[])
    attention = model.blocks[0].attn
    seen = {}
    attention.register_forward_hook(lambda _, args, out: seen.update(x=args[0], out=out))
    with torch.no_grad():
        model(image(*size))
    rows, columns = (-(-side // 16) for side in size)
    prefix = 3
    assert seen['x'].shape[1] == prefix + rows * columns
    weight = attention.qkv.weight.detach().numpy().astype(np.float64)
    for b in range(2):
        x = seen['x'][b].numpy().astype(np.float64)
        qkv = (x @ weight.T + attention.qkv.bias.detach().numpy()).reshape(len(x), 3, 2, 12)
        mixed = np.empty((len(x), 2, 12))
        for token in range(len(x)):
            keys = list(range(len(x)))
            if token >= prefix:
                row, column = divmod(token - prefix, columns)
                keys = list(range(prefix)) + [
                    prefix + r * columns + c
                    for r in range(rows)
                    for c in range(columns)
                    if (r // 2, c // 2) == (row // 2, column // 2)
                ]
            for head in range(2):
                q, k, v = qkv[token, 0, head] * 12**-0.5, qkv[keys, 1, head], qkv[keys, 2, head]
                mixed[token, head] = softmax_by_hand(q[None], k, v)[0]
        expected = mixed.reshape(len(x), 24) @ attention.proj.weight.detach().numpy().T
        expected += attention.proj.bias.detach().numpy()
        np.testing.assert_allclose(seen['out'][b].numpy(), expected, rtol=1e-4, atol=1e-5)


def test_keys_and_weights_are_timms():
    name = 'vit_tiny_patch16_224'
    own = ViTCB(name, pyramid=False, window=7)
    assert set(own.state_dict()) == set(timm.create_model(name, num_classes=0).state_dict())
    kinds = [type(block.attn).__name__ for block in own.blocks]
    everywhere = [i for i, kind in enumerate(kinds) if kind == 'Attention']
    assert everywhere == [2, 5, 8, 11]  # as ViTDet has them
    assert set(kinds) == {'Attention', 'WindowAttention'}


@pytest.mark.parametrize('prefix_in_mean', [True, False])
def test_cb_takes_the_mean_over_all_windows(prefix_in_mean):
    model = vit(window=2, broadcast='cb', layers='all', prefix_in_mean=prefix_in_mean)
    seen = {}
    mlp = model.blocks[1].mlp
    mlp.fc2.register_forward_hook(lambda _, args, out: seen.update(before=out))
    mlp.register_forward_hook(lambda _, args, out: seen.update(after=out))
    with torch.no_grad():
        model(image(64, 96))
    before = seen['before']
    mean = before[:, 0 if prefix_in_mean else 3 :].mean(1, keepdim=True)
    torch.testing.assert_close(seen['after'], (before + mean) / 2)


def test_a_patch_sees_its_window_in_that_block_and_the_image_through_cb():
    """Without CB a far patch changes nothing; with CB everything: its mean is the image's."""
    one = image(64, 64, 1)
    other = one.clone()
    other[..., 48:, 48:] += 1
    for broadcast, reaches in ((None, False), ('cb', True)):
        model = vit(window=2, global_blocks=[], broadcast=broadcast, layers='all', out_indices=(0,))
        with torch.no_grad():
            differs = not torch.equal(model(one)[0][..., 0, 0], model(other)[0][..., 0, 0])
        assert differs == reaches


def test_attention_in_windows_can_be_captured():
    model = vit(window=2, global_blocks=[3])
    with torch.no_grad(), capture(model, keep=True) as maps:
        model(image(64, 96, 1))
    assert maps[3].min() > 0
    windowed = maps[0][0, 0, 3:, 3:].reshape(4, 6, 4, 6)
    assert windowed[0, 0, :2, :2].min() > 0
    assert windowed[0, 0, 2:].max() == windowed[0, 0, :, 2:].max() == 0
    torch.testing.assert_close(maps[0].sum(-1), torch.ones(1, 2, 27))


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(window=0), 'window=0 is not a whole number of patches from 1'),
        (dict(window=2.5), 'window=2.5 is not a whole number'),
        (dict(global_blocks=[1]), 'set window too'),
        (dict(window=2, global_blocks=[9]), r'global_blocks=\(9,\) holds 9'),
        (dict(window=2, attention='W'), 'window=2 replaces a plain attention'),
    ],
)
def test_refusals(options, message):
    with pytest.raises(UserError, match=message):
        vit(**options)


def norm_by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-6).sqrt()
    return x * weight[:, None, None] + bias[:, None, None]


def test_the_simple_pyramid_by_hand():
    """ViTDet's: all levels from the last map, channels halved by every transposed convolution."""
    torch.manual_seed(0)
    neck = SimplePyramid(16, out_channels=6, num_outs=5).eval()
    x = torch.randn(2, 16, 5, 7)
    with torch.no_grad():
        levels = neck((torch.zeros(2, 16, 5, 7), x))
        assert [tuple(level.shape[1:]) for level in levels] == [
            (6, 20, 28), (6, 10, 14), (6, 5, 7), (6, 3, 4), (6, 2, 2),
        ]  # fmt: skip
        w = {
            name: value for name, value in neck.state_dict().items() if name.startswith('levels.0')
        }
        w = {name.removeprefix('levels.0.'): value for name, value in w.items()}
        assert w['0.weight'].shape[:2] == (16, 8)
        assert w['3.weight'].shape[:2] == (8, 4)
        y = F.conv_transpose2d(x, w['0.weight'], w['0.bias'], stride=2)
        y = F.gelu(norm_by_hand(y, w['1.weight'], w['1.bias']))
        y = F.conv_transpose2d(y, w['3.weight'], w['3.bias'], stride=2)
        y = norm_by_hand(F.conv2d(y, w['4.weight']), w['5.weight'], w['5.bias'])
        y = F.conv2d(y, w['6.weight'], padding=1)
        torch.testing.assert_close(levels[0], norm_by_hand(y, w['7.weight'], w['7.bias']))
        assert torch.equal(levels[4], levels[3][:, :, ::2, ::2])


def test_a_pyramid_needs_known_scales():
    with pytest.raises(UserError, match=r'only 4, 2, 1 and 0\.5'):
        SimplePyramid(16, scales=(8, 4))
    with pytest.raises(UserError, match='num_outs=3 is less than the 4 scales'):
        SimplePyramid(16, num_outs=3)
