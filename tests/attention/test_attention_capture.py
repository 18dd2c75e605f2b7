"""Captured attention is the attention that the model really uses."""

from __future__ import annotations

import ast
from pathlib import Path

import forked
import pytest
import timm
import torch
import torchvision
from mmengine.registry import MODELS, init_default_scope
from mmseg.models.backbones import SwinTransformer as MmsegSwin
from mmseg.models.backbones import VisionTransformer as MmsegTransformer
from timm.layers import Attention, AttentionRope
from timm.models.vision_transformer import VisionTransformer
from tool import SMALL_MASK_RCNN, SMALL_UPERNET, write_config
from torch import nn

import cb_mm.attention
from cb_mm.attention import capture, find_attention
from cb_mm.attention.projection import is_attention
from cb_mm.attention.tokens import Tokens
from cb_mm.config.loading import load_config, replace_sync_bn
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

SMALL = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=0)


def timm_model(name: str, **options) -> nn.Module:
    return timm.create_model(name, num_classes=0, **options)


MODELS_WITH_ATTENTION = {
    'plain': lambda: VisionTransformer(**SMALL),
    'qk-norm': lambda: VisionTransformer(**SMALL, qk_norm=True),
    'no qkv bias': lambda: VisionTransformer(**SMALL, qkv_bias=False),
    'scaled norm': lambda: VisionTransformer(**SMALL, scale_attn_norm=True),
    'registers': lambda: VisionTransformer(**SMALL, reg_tokens=4),
    'no class token': lambda: VisionTransformer(**SMALL, class_token=False, global_pool='avg'),
    'layer scale': lambda: VisionTransformer(**SMALL, init_values=0.1),
    'distilled': lambda: timm_model(
        'deit_tiny_distilled_patch16_224', img_size=32, patch_size=8, embed_dim=24, depth=2
    ),
    'registers, DINOv2': lambda: timm_model(
        'vit_small_patch14_reg4_dinov2', img_size=28, patch_size=7, embed_dim=24, depth=2,
        num_heads=3,
    ),
    'rotary': lambda: timm_model(
        'vit_small_patch16_rope_224', img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3
    ),
    'EVA': lambda: timm_model(
        'eva02_tiny_patch14_224', img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3
    ),
    'BEiT': lambda: timm_model(
        'beit_base_patch16_224', img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3
    ),
    'torchvision': lambda: torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=48
    ),
    'mmseg': lambda: MmsegTransformer(
        img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3, out_indices=(0, 1)
    ),
    'ViTCB with CB in MLP and attention': lambda: ViTCB(
        dict(patch_size=8, embed_dim=24, depth=2, num_heads=3), 'cb', 'all', 'mlp+attn',
        out_indices=(0, 1), pyramid=False, img_size=32,
    ),
}  # fmt: skip


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS_WITH_ATTENTION[name]()
    model.eval()
    for parameter in model.parameters():  # far from the small initial values, from zero biases
        nn.init.normal_(parameter, std=0.3)
    return model


def first(output):
    return output[0] if isinstance(output, tuple) else output


def batch_first(module: nn.Module, output: torch.Tensor) -> torch.Tensor:
    return output if getattr(module, 'batch_first', True) else output.transpose(0, 1)


@pytest.mark.parametrize('name', MODELS_WITH_ATTENTION)
def test_map_gives_the_modules_own_output(name):
    model = build(name)
    images = torch.randn(2, 3, 28 if 'DINO' in name else 32, 28 if 'DINO' in name else 32)
    real = {}
    handles = [
        module.register_forward_hook(
            lambda module, args, output, key=key: real.__setitem__(
                key, batch_first(module, first(output)).clone()
            ),
            prepend=True,
        )
        for key, module in find_attention(model).items()
    ]
    assert all(getattr(module, 'fused_attn', True) for module in find_attention(model).values())
    with torch.no_grad():
        alone = first(model(images))
    for handle in handles:
        handle.remove()
    seen = []

    def consume(layer):
        rows = layer.full()
        assert rows.shape == (2, layer.heads, layer.tokens.count, layer.tokens.count)
        assert rows.dtype == torch.float32
        torch.testing.assert_close(rows.sum(-1), torch.ones(rows.shape[:-1]), atol=1e-5, rtol=0)
        output = layer.output()
        scale = real[layer.name].abs().max()
        torch.testing.assert_close(output / scale, real[layer.name] / scale, atol=1e-5, rtol=0)
        seen.append(layer.index)

    with capture(model, consume), torch.no_grad():
        captured = first(model(images))
    assert seen == [0, 1]
    assert torch.equal(captured, alone)


@pytest.mark.parametrize(
    'name', ['plain', 'qk-norm', 'registers', 'distilled', 'EVA', 'BEiT', 'rotary']
)
def test_equals_timms_own_unfused_attention(name):
    model = build(name)
    images = torch.randn(1, 3, 32, 32)
    own = {}
    for key, module in find_attention(model).items():
        module.fused_attn = False
        module.attn_drop.register_forward_pre_hook(
            lambda _, args, key=key: own.__setitem__(key, args[0].clone())
        )
    with torch.no_grad():
        model(images)
        for module in find_attention(model).values():
            module.fused_attn = True
        with capture(model, keep=True) as maps:
            model(images)
    assert len(own) == len(maps) == 2
    for expected, found in zip(own.values(), maps.values(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize('kind', ['causal', 'boolean', 'additive'])
def test_masks(kind):
    torch.manual_seed(0)
    module = Attention(24, num_heads=3).eval()
    x = torch.randn(2, 9, 24)
    kept = torch.rand(9, 9).add_(torch.eye(9)) > 0.4
    arguments = {
        'causal': dict(is_causal=True),
        'boolean': dict(attn_mask=kept),
        'additive': dict(attn_mask=torch.randn(9, 9)),
    }[kind]

    def consume(layer):
        torch.testing.assert_close(layer.output(), expected, atol=1e-5, rtol=0)
        if kind == 'boolean':
            assert (layer.full()[..., ~kept] == 0).all()

    with torch.no_grad():
        expected = module(x, **arguments)
        with capture(module, consume, grid=(2, 4), prefix_tokens=1):
            module(x, **arguments)


def test_grouped_queries():
    torch.manual_seed(0)
    module = AttentionRope(24, num_heads=4, num_kv_heads=2, qkv_fused=False).eval()
    with torch.no_grad(), capture(module, keep=True, grid=(3, 3), prefix_tokens=1) as maps:
        module(torch.randn(1, 10, 24))
    assert maps[0].shape == (1, 4, 10, 10)


def test_torchs_mask_means_the_opposite():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(24, 3).eval()  # tokens first
    x = torch.randn(9, 2, 24)
    hidden = torch.rand(9, 9).sub_(torch.eye(9)) > 0.6

    def consume(layer):
        assert (layer.full()[..., hidden] == 0).all()
        torch.testing.assert_close(layer.full().mean(1), weights, atol=1e-6, rtol=0)

    with torch.no_grad():
        _, weights = module(x, x, x, attn_mask=hidden)
        with capture(module, consume, grid=(2, 4), prefix_tokens=1):
            module(x, x, x, attn_mask=hidden)


@pytest.mark.parametrize(
    ('parts', 'known'),
    [
        ({'num_heads': 2, 'proj': nn.Linear(6, 6), 'qkv': nn.Linear(6, 18)}, True),
        ({'num_heads': None, 'proj': nn.Linear(6, 6), 'qkv': nn.Linear(6, 18)}, False),
        ({'num_heads': 2, 'proj': nn.Identity(), 'qkv': nn.Linear(6, 18)}, False),
        ({'num_heads': 2, 'proj': nn.Linear(6, 6), 'qkv': nn.Linear(6, 12)}, False),
        ({'num_heads': 2, 'proj': nn.Linear(6, 6), 'q_proj': nn.Linear(6, 6)}, False),
        ({'num_heads': 2, 'proj': nn.Linear(6, 6),
          **{f'{x}_proj': nn.Linear(6, 6) for x in 'qkv'}}, True),
    ],
)  # fmt: skip
def test_attention_is_known_by_its_parts(parts, known):
    module = nn.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    assert is_attention(module) is known


@pytest.mark.parametrize('boolean', [True, False])
def test_torchs_mask_of_every_head(boolean):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(24, 3, batch_first=True).eval()
    x = torch.randn(2, 9, 24)
    mask = torch.rand(6, 9, 9).sub_(torch.eye(9))  # batch times heads
    mask = mask > 0.6 if boolean else mask

    def consume(layer):
        torch.testing.assert_close(layer.full(), weights, atol=1e-6, rtol=0)

    with torch.no_grad():
        _, weights = module(x, x, x, attn_mask=mask, average_attn_weights=False)
        with capture(module, consume, grid=(2, 4), prefix_tokens=1):
            module(x, x, x, attn_mask=mask)


def test_chunks_are_the_map_and_are_bounded():
    model = build('plain')

    def consume(layer):
        limit = 4 * 3 * 17 * 5  # five rows
        pieces = list(layer.chunks(limit))
        assert [which.stop - which.start for which, _ in pieces] == [5, 5, 5, 2]
        assert all(rows.numel() * 4 <= limit for _, rows in pieces)
        joined = torch.cat([rows for _, rows in pieces], dim=2)
        torch.testing.assert_close(joined, layer.full(), atol=1e-6, rtol=0)
        some = layer.rows([3, 16], heads=[2, 0])
        torch.testing.assert_close(some, layer.full()[:, [2, 0]][:, :, [3, 16]], atol=1e-6, rtol=0)
        torch.testing.assert_close(layer.rows(7), layer.full()[:, :, 7:8], atol=1e-6, rtol=0)

    with torch.no_grad(), capture(model, consume):
        model(torch.randn(1, 3, 32, 32))


def test_nothing_is_kept_unless_asked():
    model, gone = build('plain'), []
    with torch.no_grad(), capture(model, gone.append) as kept:
        model(torch.randn(1, 3, 32, 32))
    assert kept == {}
    assert len(gone) == 2
    with pytest.raises(RuntimeError, match=r'blocks\.0\.attn is gone'):
        gone[0].full()
    assert gone[0].tokens.grid == (4, 4)  # what it was is still known


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize('where', ['consumer', 'model', 'body', 'nowhere'])
def test_hooks_go_away(where):
    model = build('ViTCB with CB in MLP and attention')
    before = hooks(model)

    def consume(layer):
        assert hooks(model) > before
        if where == 'consumer':
            raise ZeroDivisionError

    def use():
        with torch.no_grad(), capture(model, consume):
            if where == 'body':
                raise ZeroDivisionError
            model(torch.randn(1, 5 if where == 'model' else 3, 32, 32))

    if where == 'nowhere':
        use()
    else:
        with pytest.raises((ZeroDivisionError, RuntimeError)):
            use()
    assert hooks(model) == before


def test_layers_that_are_chosen():
    model, seen = build('plain'), []
    with torch.no_grad(), capture(model, lambda layer: seen.append(layer.index), layers=[-1]):
        model(torch.randn(1, 3, 32, 32))
    assert seen == [1]
    with (
        pytest.raises(UserError, match='layer 7 does not exist: the model has the 2 attention'),
        capture(model, layers=[0, 7]),
    ):
        pass


@pytest.mark.parametrize(
    ('name', 'prefix'),
    [
        ('plain', ('cls',)),
        ('distilled', ('cls', 'dist')),
        ('registers', ('cls', 'reg0', 'reg1', 'reg2', 'reg3')),
        ('no class token', ()),
        ('torchvision', ('cls',)),
    ],
)
def test_names_of_the_prefix_tokens(name, prefix):
    model, seen = build(name), []
    with torch.no_grad(), capture(model, seen.append):
        model(torch.randn(1, 3, 32, 32))
    tokens = seen[0].tokens
    assert tokens.prefix == prefix
    assert tokens.class_token == (0 if prefix else None)
    assert tokens.count == len(prefix) + 16


def test_any_image_size():
    """ViTCB pads at the right and the bottom: the grid reaches over the image."""
    model, seen = build('ViTCB with CB in MLP and attention'), []
    with torch.no_grad(), capture(model, seen.append):
        model(torch.randn(1, 3, 35, 50))
    assert seen[1].tokens == Tokens(('cls',), (5, 7), (35, 50), (8, 8))
    assert str(seen[1]) == "LayerAttention(1, 'blocks.1.attn', heads=3, tokens=1+5x7)"


def test_pixels_and_tokens():
    tokens = Tokens(('cls', 'dist'), (5, 7), (35, 50), (8, 8))
    assert tokens.at_pixel(0, 0) == 2
    assert tokens.at_pixel(8, 0) == 3
    assert tokens.at_pixel(49, 34) == 2 + 34
    assert tokens.cell(tokens.at_pixel(17, 9)) == (1, 2)
    assert tokens.centre(tokens.at_pixel(17, 9)) == (20, 12)
    for x, y in ((-1, 0), (50, 0), (0, 35), (float('nan'), 0)):
        with pytest.raises(UserError, match='x goes from 0 to 49, y from 0 to 34'):
            tokens.at_pixel(x, y)


@pytest.mark.parametrize('text', [SMALL_UPERNET, SMALL_MASK_RCNN], ids=['segmentor', 'detector'])
def test_inside_a_segmentor_or_detector(tmp_path, text):
    config = load_config(write_config(tmp_path, text))
    replace_sync_bn(config)
    init_default_scope(config.default_scope)
    model = MODELS.build(config.model).eval()
    seen = []
    with torch.no_grad(), capture(model, seen.append):
        model.extract_feat(torch.randn(1, 3, 64, 96))
    assert [layer.name for layer in seen] == [f'backbone.blocks.{i}.attn' for i in range(4)]
    assert seen[0].tokens.grid == (4, 6)


HALF = """
import torch
import cb_mm
from timm.models.vision_transformer import VisionTransformer
from cb_mm.attention import capture

model = VisionTransformer(
    img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=0
).eval()
images, sums = torch.randn(1, 3, 32, 32), []
consume = lambda layer: sums.append(layer.full().sum(-1))
with torch.no_grad(), torch.autocast('cpu', torch.bfloat16), capture(model, consume):
    model(images)
model = model.to(torch.bfloat16)
with torch.no_grad(), capture(model, consume):
    model(images.to(torch.bfloat16))
assert len(sums) == 4
assert {total.dtype for total in sums} == {torch.float32}
for total in sums:
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)
"""


def test_half_precision(tmp_path):
    # By itself, and without AMX: some virtual machines announce it, and end a process that
    # uses it.
    done = forked.run('-c', HALF, cwd=tmp_path, env=forked.WITHOUT_AMX)
    assert done.code == 0, done.err


def test_the_fit_goes_on_as_ever():
    """Gradients pass through a captured forward as through any other."""
    model = build('plain')
    model.train()
    with capture(model, lambda layer: layer.full()):
        model(torch.randn(1, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


class Sharpened(Attention):
    """Looks like timm's attention and computes another one."""

    def forward(self, x, attn_mask=None, is_causal=False):
        return super().forward(2 * x)


def test_a_look_alike_is_refused():
    model = VisionTransformer(**SMALL, attn_layer=Sharpened).eval()
    with (
        pytest.raises(UserError, match=r'blocks\.0\.attn \(Sharpened\) does not compute softmax'),
        torch.no_grad(),
        capture(model),
    ):
        model(torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize(
    ('name', 'options', 'words'),
    [
        ('resnet18', {}, r'ResNet has no attention; it consists of 20 × Conv2d'),
        (
            'swin_tiny_patch4_window7_224',
            {},
            r'12 × WindowAttention, with the parts .*relative_position_bias_table',
        ),
        ('pvt_v2_b0', {}, r'8 × Attention, with the parts .*kv'),
        ('xcit_nano_12_p16_224', dict(depth=1), r'\(XCA\) does not compute softmax'),
        ('pit_ti_224', {}, r'attends over 197 tokens, which are not .* a grid of 27 × 27'),
    ],
)
def test_what_cannot_be_read_is_named(name, options, words):
    model = timm_model(name, **options).eval()
    with pytest.raises(UserError, match=words), torch.no_grad(), capture(model):
        model(torch.randn(1, 3, 224, 224))


def test_windows_of_mmseg_are_named():
    with pytest.raises(UserError, match='12 × ShiftWindowMSA'), capture(MmsegSwin(depths=(3,) * 4)):
        pass


def test_a_grid_that_is_not_known_is_asked_for():
    module = nn.TransformerEncoderLayer(24, 3, batch_first=True).train()
    with pytest.raises(UserError, match=r'Give grid=\(rows, columns\)'), capture(module):
        module(torch.randn(1, 9, 24))


def test_needs_neither_mmseg_nor_mmdet():
    files = list(Path(cb_mm.attention.__file__).parent.glob('*.py'))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or '']
            assert not [n for n in names if n.split('.')[0] in ('mmseg', 'mmdet')], file
