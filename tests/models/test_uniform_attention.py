"""Uniform heads inside the MSA: (A), (B) and (C) of the paper's Table 1."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from cb_mm.attention import capture
from cb_mm.errors import UserError
from cb_mm.models import ViTCB
from cb_mm.models.attention.uniform import UNIFORM_KINDS, UniformHeadAttention

SMALL = dict(patch_size=8, embed_dim=48, depth=3, num_heads=3)


def seeded(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def small(kind: str, **options) -> ViTCB:
    torch.manual_seed(0)
    options = {'pyramid': False, 'img_size': 32, 'out_indices': (1, 2), **options}
    model = ViTCB(SMALL, attention=kind, **options)
    for name, parameter in model.named_parameters():
        if 'attn' in name:  # far from the small initial values
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def parameters(arch: str, kind: str | None) -> float:
    """Millions, with the classifier for 1000 classes that the paper counts."""
    model = ViTCB(arch, attention=kind, pyramid=False)
    return (sum(p.numel() for p in model.parameters()) + 1000 * (model.embed_dim + 1)) / 1e6


@pytest.mark.parametrize(
    ('kind', 'paper', 'exact'),
    [(None, 22, 22.051), ('uniform_a', 21, 21.459), ('uniform_b', 22, 22.060),
     ('uniform_c', 29, 29.165)],
)  # fmt: skip
def test_parameters_of_table_1(kind, paper, exact):
    millions = parameters('small', kind)
    assert round(millions) == paper
    assert millions == pytest.approx(exact, abs=5e-4)


def test_b_has_nearly_the_parameters_of_the_plain_model():
    assert parameters('tiny', 'uniform_b') == pytest.approx(parameters('tiny', None), rel=1e-3)


@pytest.mark.parametrize('width', [None, 7])
def test_output_by_hand(width):
    torch.manual_seed(0)
    attention = UniformHeadAttention(12, 3, query_width=width).eval()
    torch.nn.init.normal_(attention.qkv.weight)
    x = seeded(2, 5, 12)
    qk = width or 4
    q, k, v = attention.qkv(x).split([2 * qk, 2 * qk, 12], dim=-1)
    heads = []
    for i in range(2):
        part = slice(i * qk, (i + 1) * qk)
        weights = (q[..., part] @ k[..., part].transpose(1, 2) * qk**-0.5).softmax(-1)
        heads.append(weights @ v[..., 4 * i : 4 * i + 4])
    heads.append(v[..., 8:].mean(1, keepdim=True).expand(2, 5, 4))
    torch.testing.assert_close(attention(x), attention.proj(torch.cat(heads, -1)))


@pytest.mark.parametrize('kind', UNIFORM_KINDS)
def test_captured_map_of_the_last_head_is_uniform(kind):
    model = small(kind).eval()
    with torch.no_grad(), capture(model, keep=True) as maps:
        model(seeded(1, 3, 24, 40))
    heads = 4 if kind == 'uniform_c' else 3
    tokens = 1 + 3 * 5
    for found in maps.values():
        assert found.shape == (1, heads, tokens, tokens)
        torch.testing.assert_close(found[:, -1], torch.full((1, tokens, tokens), 1 / tokens))
        assert (found[:, :-1] - 1 / tokens).abs().max() > 0.05
    assert len(maps) == 3


@pytest.mark.parametrize('kind', UNIFORM_KINDS)
def test_trains_a_step_with_cb(kind):
    model = small(kind, broadcast='cb_s', with_cp=True, drop_path_rate=0.1).train()
    assert model.embed_dims == (64 if kind == 'uniform_c' else 48)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    maps = model(seeded(2, 3, 32, 48))
    assert maps[0].shape == (2, model.embed_dims, 4, 6)
    sum(m.float().square().mean() for m in maps).backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.isfinite().all(), name
    assert not torch.equal(before['blocks.0.attn.qkv.weight'], model.blocks[0].attn.qkv.weight)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(attention='uniform'), 'Did you mean "uniform_'),
        (dict(arch={**SMALL, 'num_heads': 1}, attention='uniform_a'), 'two heads or more'),
        (dict(arch={**SMALL, 'qk_norm': True}, attention='uniform_a'), 'normed queries'),
        (
            dict(arch='vit_small_patch16_rope_224', attention='uniform_a'),
            'is not a plain Vision Transformer',
        ),
    ],
)
def test_wrong_options_say_what_is_wrong(options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        ViTCB(**{'arch': SMALL, 'pyramid': False, 'out_indices': (0,), **options})
