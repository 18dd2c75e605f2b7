from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.models.vision_transformer import Block, ParallelScalingBlock, VisionTransformer
from torch import nn

from cb_mm import add_context_broadcast
from cb_mm.checkpoints.backbone_weights import load_weights
from cb_mm.checkpoints.provenance import Provenance
from cb_mm.errors import UserError
from cb_mm.models import TimmCB, ViTCB
from cb_mm.models.backbones.with_cb import with_broadcast
from cb_mm.models.broadcast.context_broadcast import (
    BROADCASTS,
    POSITIONS,
    ContextBroadcast,
    attach,
    build_broadcast,
    place_broadcast,
    resolve_layers,
)

WIDTH = 96  # SE's hidden layer then has 6 channels: enough for its ReLU to matter


def tokens(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def filled(kind: str, **options) -> nn.Module:
    """The module with parameters that are not at their initial value."""
    module = build_broadcast(kind, WIDTH, **options)
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, generator=generator)
    return module


def formula(kind: str, module: nn.Module, x: torch.Tensor, skip: int = 0) -> torch.Tensor:
    """As printed in the paper, token by token."""
    mean = sum(x[:, j] for j in range(skip, x.shape[1])) / (x.shape[1] - skip)
    rows = []
    for i in range(x.shape[1]):
        xi, x0 = x[:, i], x[:, 0]
        if kind == 'cb':
            rows.append((xi + mean) / 2)
        elif kind == 'cb_s':
            rows.append(xi + module.scale * mean)
        elif kind == 'cb_blend':
            rows.append((1 - module.scale) * xi + module.scale * mean)
        elif kind == 'cb_gate':
            rows.append(xi * (x0 + 1))
        elif kind == 'cb_hybrid':
            rows.append(xi * x0 + (xi + mean) / 2)
        else:
            hidden = mean @ module.fc1.weight.T + module.fc1.bias
            assert (hidden < 0).any()  # or this would not tell SE from SE without its ReLU
            hidden = torch.where(hidden > 0, hidden, 0)
            rows.append(xi * torch.sigmoid(hidden @ module.fc2.weight.T + module.fc2.bias))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize('skip', [0, 2])
@pytest.mark.parametrize('kind', BROADCASTS)
def test_equals_its_formula_and_gradient(kind, skip):
    module = filled(kind, skip_tokens=skip).double()
    x = tokens(2, 7, WIDTH).double().requires_grad_()
    y = tokens(2, 7, WIDTH).double().requires_grad_()
    out, expected = module(x), formula(kind, module, y, skip)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    weight = tokens(2, 7, WIDTH, seed=3).double()
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('skip', [0, 2])
@pytest.mark.parametrize('kind', BROADCASTS)
def test_padding_does_not_count(kind, skip):
    module = filled(kind, skip_tokens=skip).double()
    x = tokens(2, 7, WIDTH).double()
    real = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])
    out = module(x, real)
    torch.testing.assert_close(out[:1, :5], module(x[:1, :5]), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(out[1:], module(x[1:]), rtol=1e-12, atol=1e-12)
    assert torch.isfinite(module(x, torch.zeros_like(real))).all()  # a text without words


def test_printed_line_of_the_paper():
    x = tokens(3, 197, 384)
    line = 0.5 * x + 0.5 * x.mean(dim=1, keepdim=True)
    torch.testing.assert_close(build_broadcast('cb', 384)(x), line, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=30)
@given(batch=st.integers(0, 3), count=st.integers(1, 40), seed=st.integers(0, 99))
def test_any_batch_and_token_count(batch, count, seed):
    x = tokens(batch, count, WIDTH, seed=seed)
    for kind in BROADCASTS:
        out = filled(kind)(x)
        assert out.shape == x.shape
        assert torch.isfinite(out).all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_token_stays_as_it_is(dtype):
    x = tokens(5, 1, WIDTH, dtype=dtype) * 100
    assert torch.equal(build_broadcast('cb', WIDTH)(x), x)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_mean_of_half_precision_is_summed_in_float32(dtype):
    # 4096 tokens of 64 sum to more than float16 holds; in bfloat16 a running sum would stop
    # growing at 256 × 64.
    x = torch.full((1, 4096, WIDTH), 64.0, dtype=dtype)
    assert torch.equal(build_broadcast('cb', WIDTH)(x), x)
    module = filled('cb')
    assert module.mean(x).dtype == torch.float32


def test_no_overflow_near_the_largest_number():
    x = torch.full((1, 3, WIDTH), 6e4, dtype=torch.float16)
    assert torch.isfinite(build_broadcast('cb', WIDTH)(x)).all()


@pytest.mark.parametrize('kind', BROADCASTS)
def test_type_is_kept_under_autocast(kind):
    module = filled(kind)
    x = tokens(2, 50, WIDTH)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = module(x.bfloat16())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), module(x.bfloat16().float()), rtol=0.02, atol=0.03)


def test_parameters():
    counts = {k: sum(p.numel() for p in build_broadcast(k, 384).parameters()) for k in BROADCASTS}
    assert counts == {
        'cb': 0,
        'cb_s': 384,
        'cb_blend': 1,
        'cb_gate': 0,
        'cb_hybrid': 0,
        'se': 2 * 384 * 24 + 24 + 384,
    }


def test_scale_starts_where_it_is_told():
    x = tokens(2, 9, WIDTH)
    for kind in ('cb_s', 'cb_blend'):
        assert torch.equal(build_broadcast(kind, WIDTH)(x), x)
    module = build_broadcast('cb_s', WIDTH, scale_init=0.5)
    torch.testing.assert_close(module(x), x + 0.5 * x.mean(1, keepdim=True))
    half = build_broadcast('cb_blend', WIDTH, scale_init=0.5)
    torch.testing.assert_close(half(x), build_broadcast('cb', WIDTH)(x))


@pytest.mark.parametrize('position', POSITIONS)
@pytest.mark.parametrize('kind', ['cb', 'cb_s'])
def test_copies_and_pickles_of_a_block_stay_whole(kind, position):
    block = Block(WIDTH, num_heads=2)
    place_broadcast(block, kind, position, scale_init=0.3)
    x = tokens(2, 5, WIDTH)
    for twin in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert torch.equal(twin(x), block(x))
        before = block(x).clone()
        for parameter in twin.parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(block(x), before)  # the twin's module is its own
        assert not torch.equal(twin(x), before)


def test_keys_of_the_host_do_not_change():
    block = Block(WIDTH, num_heads=2)
    keys = list(block.state_dict())
    place_broadcast(block, 'cb')
    assert list(block.state_dict()) == keys
    other = Block(WIDTH, num_heads=2)
    place_broadcast(other, 'cb_s')
    assert set(other.state_dict()) - set(keys) == {'mlp.broadcast.scale'}


def test_mid_has_the_hidden_width():
    block = Block(WIDTH, num_heads=2, mlp_ratio=3)
    place_broadcast(block, 'cb_s', 'mid')
    assert block.mlp.fc2.broadcast.scale.shape == (3 * WIDTH,)


def test_one_broadcast_a_place():
    block = Block(WIDTH, num_heads=2)
    place_broadcast(block, 'cb')
    with pytest.raises(UserError, match='has a broadcast already'):
        place_broadcast(block, 'cb')


def test_input_of_a_foreign_module():
    host = nn.Linear(WIDTH, 3)
    plain = copy.deepcopy(host)
    attach(host, build_broadcast('cb', WIDTH), 'input')
    x = tokens(2, 5, WIDTH)
    torch.testing.assert_close(host(x), plain((x + x.mean(1, keepdim=True)) / 2))


@pytest.mark.parametrize(
    ('layers', 'depth', 'expected'),
    [
        ('upper', 12, (6, 7, 8, 9, 10, 11)),
        ('upper', 5, (3, 4)),
        ('upper', 1, ()),
        ('all', 3, (0, 1, 2)),
        ([0, 2], 3, (0, 2)),
        ([-1], 12, (11,)),
        ([], 4, ()),
    ],
)
def test_layers(layers, depth, expected):
    assert resolve_layers(layers, depth) == expected


@pytest.mark.parametrize('kind', BROADCASTS)
def test_layers_by_default_are_those_of_the_variant(kind):
    """CB_S is in all layers, our reading of its 0.02 % of parameters, and so is cb_blend."""
    expected = tuple(range(4)) if kind in ('cb_s', 'cb_blend') else (2, 3)
    arch = dict(depth=4, embed_dim=16, num_heads=2, patch_size=16, img_size=32)
    options = dict(broadcast=kind, out_indices=(3,), pyramid=False)
    assert ViTCB(arch, **options).broadcast_layers == expected
    assert ViTCB(arch, **options, layers='upper').broadcast_layers == (2, 3)
    added = add_context_broadcast(VisionTransformer(**arch), kind)
    assert added.names == tuple(f'blocks.{i}.mlp' for i in expected)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: build_broadcast('cbs', WIDTH), 'Did you mean "cb_s"'),
        (lambda: place_broadcast(Block(WIDTH, 2), 'cb', 'ende'), 'Did you mean "end"'),
        (lambda: resolve_layers('uper', 12), 'Did you mean "upper"'),
        (lambda: resolve_layers([12], 12), 'the 12 layers 0 to 11'),
        (lambda: resolve_layers([True], 12), 'holds True'),
        (lambda: resolve_layers(['1'], 12), "holds '1'"),
        (
            lambda: place_broadcast(ParallelScalingBlock(WIDTH, 2), 'cb'),
            'ParallelScalingBlock has no mlp',
        ),
        (lambda: place_broadcast(nn.Linear(2, 2), 'cb', 'attn'), 'Linear has no attn'),
    ],
)
def test_wrong_options_say_what_is_wrong(call, message):
    with pytest.raises(UserError, match=message):
        call()


class Tilted(ContextBroadcast):
    """As CONTRIBUTING says: ``x_i -> x_i + W mean_j x_j``, with W = 0 at first."""

    identity_at_init = True

    def __init__(self, width: int, skip_tokens: int = 0) -> None:
        super().__init__(skip_tokens)
        self.mix = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.mix.weight)

    def forward(self, x: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
        return x + self.mix(self.mean(x, real).to(x.dtype))


PVT = dict(
    type='mmdet.PyramidVisionTransformer', embed_dims=8, num_layers=[1, 1, 1, 1],
    num_heads=[1, 1, 2, 2], sr_ratios=[2, 2, 1, 1],
)  # fmt: skip
SMALL = dict(patch_size=8, embed_dim=24, depth=4, num_heads=3)
SMALL_TIMM = dict(model_name='vit_tiny_patch16_224', img_size=32, model_kwargs=dict(depth=2))


def inserted(name: str) -> nn.Module:
    model = VisionTransformer(img_size=32, num_classes=0, global_pool='', **SMALL)
    add_context_broadcast(model, name)
    return model


@pytest.mark.parametrize(
    'build',
    [
        lambda name: ViTCB(SMALL, broadcast=name, out_indices=(3,), pyramid=False, img_size=32),
        lambda name: TimmCB(**SMALL_TIMM, broadcast=name, out_indices=(1,), pyramid=False),
        lambda name: with_broadcast(PVT, broadcast=name),
        inserted,
    ],
    ids=['ViTCB', 'TimmCB', 'WithCB', 'add_context_broadcast'],
)
def test_a_variant_added_as_contributing_says_trains(build, monkeypatch):
    monkeypatch.setitem(BROADCASTS, 'tilted', Tilted)
    torch.manual_seed(0)
    model = build('tilted').train()
    variants = [module for module in model.modules() if isinstance(module, Tilted)]
    assert variants
    for _ in range(2):
        maps = model(tokens(2, 3, 32, 32))
        maps = [maps] if isinstance(maps, torch.Tensor) else maps
        sum((m * tokens(*m.shape, seed=3)).sum() for m in maps).backward()
        with torch.no_grad():
            for variant in variants:
                assert variant.mix.weight.grad.abs().sum() > 0
                variant.mix.weight -= 1e-3 * variant.mix.weight.grad


def test_a_variant_that_starts_as_the_identity_takes_plain_weights(tmp_path, monkeypatch):
    """With and without a record in the file; a variant which does not is told."""
    monkeypatch.setitem(BROADCASTS, 'tilted', Tilted)
    plain = ViTCB(SMALL, img_size=32, out_indices=(3,), pyramid=False)
    meta = {'cb_mm': Provenance.of_model(plain).to_meta()}
    for content in (plain.state_dict(), {'state_dict': plain.state_dict(), 'meta': meta}):
        torch.save(content, tmp_path / 'plain.pth')
        model = ViTCB(SMALL, broadcast='tilted', img_size=32, out_indices=(3,), pyramid=False)
        assert 'CAUTION' not in str(load_weights(model, tmp_path / 'plain.pth'))
        monkeypatch.setattr(Tilted, 'identity_at_init', False)
        if 'meta' in content:
            with pytest.raises(UserError, match='trained with no broadcast'):
                load_weights(model, tmp_path / 'plain.pth')
        else:
            assert 'CAUTION' in str(load_weights(model, tmp_path / 'plain.pth'))
        monkeypatch.setattr(Tilted, 'identity_at_init', True)


def test_a_variant_with_a_width_is_refused_where_the_width_is_not_known(monkeypatch):
    monkeypatch.setitem(BROADCASTS, 'tilted', Tilted)
    model = VisionTransformer(img_size=32, num_classes=0, **SMALL)
    with pytest.raises(UserError, match=r"blocks\.2\.norm2 is not known.*'tilted' needs it"):
        add_context_broadcast(model, 'tilted', pattern='blocks.*.norm2')
