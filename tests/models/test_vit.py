from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from mmengine.analysis import get_model_complexity_info
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cb_mm.errors import UserError
from cb_mm.models import ViTCB
from cb_mm.models.broadcast.context_broadcast import BROADCASTS, POSITIONS

REPO = Path(__file__).resolve().parents[2]
OUT = (3, 5, 7, 11)
SMALL = {'embed_dim': 48, 'depth': 4, 'num_heads': 3, 'patch_size': 16}


def images(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def small(**options) -> ViTCB:
    torch.manual_seed(0)
    options = {'arch': SMALL, 'out_indices': (0, 1, 2, 3), 'img_size': 64, **options}
    return ViTCB(**options)


@pytest.fixture(scope='session')
def weights_file(shared) -> Path:
    return shared / 'weights' / 'vit_tiny_patch16_224_in1k.safetensors'


@pytest.fixture(scope='session')
def real(weights_file) -> dict[str, torch.Tensor]:
    state_dict = load_file(weights_file)
    return {key: value for key, value in state_dict.items() if not key.startswith('head.')}


def tiny(real, **options) -> ViTCB:
    model = ViTCB('tiny', **{'pyramid': False, **options})
    missing, unexpected = model.load_state_dict(real, strict=False)
    assert not unexpected
    assert all('broadcast' in key for key in missing)
    return model.eval()


def timm_model(name: str, **options) -> torch.nn.Module:
    options = {'num_classes': 0, 'dynamic_img_size': True, 'dynamic_img_pad': True, **options}
    return timm.create_model(name, **options).eval()


# --- the same as timm ---------------------------------------------------------------------------


@pytest.mark.parametrize('size', [(224, 224), (512, 512), (360, 480), (97, 33), (5, 7)])
def test_real_features_equal_timm(real, size):
    ours, theirs = tiny(real), timm_model('vit_tiny_patch16_224')
    theirs.load_state_dict(real)
    x = images(2, 3, *size)
    with torch.no_grad():
        expected = theirs.forward_intermediates(x, indices=list(OUT), intermediates_only=True)
        maps = ours(x)
    assert len(maps) == 4
    for ours_i, theirs_i in zip(maps, expected, strict=True):
        assert ours_i.shape[2:] == (-(-size[0] // 16), -(-size[1] // 16))
        torch.testing.assert_close(ours_i, theirs_i, rtol=0, atol=1e-5)


def test_fused_and_unfused_attention_agree(real):
    fused, plain = tiny(real), tiny(real)
    for block in plain.blocks:
        assert block.attn.fused_attn
        block.attn.fused_attn = False
    x = images(1, 3, 224, 256)
    with torch.no_grad():
        for a, b in zip(fused(x), plain(x), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    'name',
    [
        'deit_tiny_patch16_224',
        'deit_tiny_distilled_patch16_224',
        'vit_tiny_patch16_224.augreg_in21k',
        'vit_small_patch8_224.dino',
        'vit_small_patch14_reg4_dinov2',
        'deit3_small_patch16_224',
        'vit_xsmall_patch16_clip_224',
    ],
)
def test_any_timm_name_has_its_keys_and_features(name):
    theirs = timm_model(name)
    indices = [0, 3, 5, len(theirs.blocks) - 1]
    ours = ViTCB(name, pyramid=False, out_indices=indices).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    ours.load_state_dict(theirs.state_dict())
    x = images(1, 3, 60, 90)
    with torch.no_grad():
        expected = theirs.forward_intermediates(x, indices=indices, intermediates_only=True)
        for a, b in zip(ours(x), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_keys_are_timms_whatever_is_returned():
    keys = list(timm_model('vit_tiny_patch16_224').state_dict())
    assert list(ViTCB('tiny', pyramid=False, out_indices=(2, 5)).state_dict()) == keys
    assert list(ViTCB('tiny', pyramid=False, broadcast='cb').state_dict()) == keys
    assert list(ViTCB('tiny', pyramid=False, norm_out=True).state_dict()) == keys


def test_final_norm_on_the_maps(real):
    theirs = timm_model('vit_tiny_patch16_224')
    theirs.load_state_dict(real)
    x = images(1, 3, 64, 96)
    expected = theirs.forward_intermediates(
        x, indices=list(OUT), intermediates_only=True, norm=True
    )
    for a, b in zip(tiny(real, norm_out=True)(x), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


# --- context broadcasting in the whole model ----------------------------------------------------


def formula(kind: str, x: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
    mean = x.sum(dim=1, keepdim=True) / x.shape[1]
    if kind == 'cb':
        return (x + mean) / 2
    if kind == 'cb_s':
        return x + module.scale * mean
    if kind == 'cb_blend':
        return (1 - module.scale) * x + module.scale * mean
    if kind == 'cb_gate':
        return x * (x[:, :1] + 1)
    if kind == 'cb_hybrid':
        return x * x[:, :1] + (x + mean) / 2
    hidden = F.linear(mean, module.fc1.weight, module.fc1.bias).relu()
    return x * F.linear(hidden, module.fc2.weight, module.fc2.bias).sigmoid()


def by_hand(model: ViTCB, x: torch.Tensor, kind: str, position: str) -> list[torch.Tensor]:
    """The whole ViT in plain functions: no module that CB is hooked to is called."""

    def linear(layer, y):
        return F.linear(y, layer.weight, layer.bias)

    x = model.patch_embed.proj(x)
    grid = x.shape[2:]
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1) + model.pos_embed
    maps = []
    for i, block in enumerate(model.blocks):
        on = i in model.broadcast_layers
        y = block.norm1(x)
        q, k, v = linear(block.attn.qkv, y).chunk(3, dim=-1)
        heads = [t.unflatten(-1, (block.attn.num_heads, -1)).transpose(1, 2) for t in (q, k, v)]
        scores = (heads[0] @ heads[1].transpose(-2, -1)) / heads[0].shape[-1] ** 0.5
        y = linear(block.attn.proj, (scores.softmax(-1) @ heads[2]).transpose(1, 2).flatten(2))
        if on and position in ('attn', 'mlp+attn'):
            y = formula(kind, y, block.attn.broadcast)
        x = x + y
        y = block.norm2(x)
        if on and position == 'front':
            y = formula(kind, y, block.mlp.broadcast)
        y = F.gelu(linear(block.mlp.fc1, y))
        if on and position == 'mid':
            y = formula(kind, y, block.mlp.fc2.broadcast)
        y = linear(block.mlp.fc2, y)
        if on and position in ('end', 'mlp+attn'):
            y = formula(kind, y, block.mlp.broadcast)
        x = x + y
        if i in model.out_indices:
            maps.append(x[:, 1:].transpose(1, 2).unflatten(2, grid))
    return maps


@pytest.mark.parametrize('position', POSITIONS)
@pytest.mark.parametrize('kind', BROADCASTS)
def test_formula_by_hand_in_the_whole_model(real, kind, position):
    torch.manual_seed(0)
    model = tiny(real, broadcast=kind, position=position, layers='upper').double()
    for name, parameter in model.named_parameters():
        if 'broadcast' in name:
            torch.nn.init.normal_(parameter, std=0.3)
    plain = tiny(real).double()
    x = images(1, 3, 224, 224).double()
    with torch.no_grad():
        maps, plain_maps = model(x), plain(x)
        for a, b in zip(maps, by_hand(model, x, kind, position), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)
    # Layers below the upper half are untouched, those in it are not.
    assert torch.equal(maps[0], plain_maps[0])
    assert not torch.allclose(maps[2], plain_maps[2], atol=1e-3)


def test_place_is_before_layer_scale_and_drop_path():
    model = small(arch={**SMALL, 'init_values': 0.1}, broadcast='cb', layers=[3], pyramid=False)
    plain = small(arch={**SMALL, 'init_values': 0.1}, pyramid=False)
    plain.load_state_dict(model.state_dict())
    for vit in (model, plain):
        torch.nn.init.uniform_(vit.blocks[3].ls2.gamma, generator=torch.Generator().manual_seed(5))
    seen = {}
    model.blocks[3].ls2.register_forward_pre_hook(lambda _, args: seen.update(cb=args[0]))
    plain.blocks[3].ls2.register_forward_pre_hook(lambda _, args: seen.update(plain=args[0]))
    x = images(2, 3, 64, 64)
    model.eval()(x), plain.eval()(x)
    torch.testing.assert_close(seen['cb'], formula('cb', seen['plain'], None))


def test_scale_at_its_initial_value_changes_nothing(real):
    x = images(1, 3, 224, 224)
    with torch.no_grad():
        for position in POSITIONS:
            model = tiny(real, broadcast='cb_s', layers='all', position=position)
            for a, b in zip(model(x), tiny(real)(x), strict=True):
                assert torch.equal(a, b)


def test_prefix_tokens_can_stay_out_of_the_mean():
    arch = {**SMALL, 'reg_tokens': 3}
    with_all = small(arch=arch, broadcast='cb', pyramid=False).eval()
    without = small(arch=arch, broadcast='cb', pyramid=False, prefix_in_mean=False).eval()
    assert {block.mlp.broadcast.skip_tokens for block in with_all.blocks[2:]} == {0}
    assert {block.mlp.broadcast.skip_tokens for block in without.blocks[2:]} == {4}
    x = images(1, 3, 64, 64)
    assert not torch.equal(with_all(x)[-1], without(x)[-1])


def test_layers_with_broadcast():
    def layers(**options):
        return ViTCB('tiny', broadcast='cb', **options).broadcast_layers

    assert layers() == (6, 7, 8, 9, 10, 11)
    assert layers(layers='all') == tuple(range(12))
    assert layers(layers=[0, -1]) == (0, 11)
    assert layers(skip_out_layers=True) == (6, 8, 9, 10)
    assert layers(layers='all', skip_out_layers=True) == (0, 1, 2, 4, 6, 8, 9, 10)
    assert ViTCB('tiny').broadcast_layers == ()


# --- size and work ------------------------------------------------------------------------------


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def gmacs(model: torch.nn.Module) -> float:
    # Of the kernels of fused attention torch counts only some; the plain one is all matmuls.
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model.eval()(torch.zeros(1, 3, 224, 224))
    return counter.get_total_flops() / 2e9


@pytest.mark.parametrize(
    ('arch', 'width', 'millions', 'work'),
    [('tiny', 192, 5.7, 1.3), ('small', 384, 22.0, 4.6), ('base', 768, 86.6, 17.6)],
)
def test_published_size_and_work(arch, width, millions, work):
    model = ViTCB(arch, pyramid=False)
    classifier = width * 1000 + 1000  # the papers count it
    assert abs((parameters(model) + classifier) / 1e6 - millions) < 0.06
    assert abs(gmacs(model) + classifier / 1e9 - work) < 0.06


def test_work_of_context_broadcasting():
    plain, cb = ViTCB('small', pyramid=False), ViTCB('small', pyramid=False, broadcast='cb')
    # Two libraries that count matrix products see nothing at all.
    assert gmacs(cb) == gmacs(plain)
    options = {'input_shape': (3, 224, 224), 'show_table': False, 'show_arch': False}
    flops = [get_model_complexity_info(m.eval(), **options)['flops'] for m in (plain, cb)]
    assert flops[0] == flops[1]
    # By formula: one addition a number for the mean and one multiply-add for the rest.
    tokens = 14 * 14 + 1
    assert 2 * tokens * 384 * len(cb.broadcast_layers) <= 1e6


def test_parameters_of_context_broadcasting():
    plain = parameters(ViTCB('small'))
    assert parameters(ViTCB('small', broadcast='cb', layers='all')) == plain
    extra = parameters(ViTCB('small', broadcast='cb_s', layers='all')) - plain
    assert extra == 12 * 384 == 4608
    assert round(100 * extra / 22.05e6, 2) == 0.02


def test_drop_path_rises_linearly():
    model = ViTCB('tiny', drop_path_rate=0.11)
    rates = [getattr(block.drop_path2, 'drop_prob', 0.0) for block in model.blocks]
    assert rates == pytest.approx([i * 0.01 for i in range(12)])


def test_drop_path_can_be_constant():
    arch = dict(depth=3, embed_dim=16, num_heads=2, patch_size=16, img_size=32)
    model = ViTCB(
        arch, drop_path_rate=0.2, drop_path_mode='constant', out_indices=(2,), pyramid=False
    )
    parts = [getattr(block, f'drop_path{i}') for block in model.blocks for i in (1, 2)]
    assert [part.drop_prob for part in parts] == [0.2] * 6
    with pytest.raises(UserError, match="drop_path_mode='falling' is not one of linear, constant"):
        ViTCB(arch, drop_path_mode='falling')


# --- as an object -------------------------------------------------------------------------------


def test_copies_and_pickles():
    arch = 'deit_tiny_distilled_patch16_224'
    model = ViTCB(arch, broadcast='cb_s', out_indices=(0, 1, 2, 3)).eval()
    x = images(1, 3, 40, 64)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for a, b in zip(twin(x), model(x), strict=True):
            assert torch.equal(a, b)


def test_order_and_repetition_of_out_indices():
    model = small(out_indices=(3, 1, -1, 1), pyramid=False).eval()
    maps = model(images(1, 3, 64, 64))
    assert torch.equal(maps[0], maps[2])
    assert torch.equal(maps[1], maps[3])
    assert not torch.equal(maps[0], maps[1])


@pytest.mark.parametrize('size', [64, 96, (64, 128)])
def test_position_embedding_is_resized_by_any_loading(size):
    source = small(img_size=64)
    target = small(img_size=size)
    target.load_state_dict(source.state_dict())
    grid = (size, size) if isinstance(size, int) else size
    assert target.pos_embed.shape[1] == grid[0] * grid[1] // 256 + 1
    cells = source.pos_embed.detach()[:, 1:].reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(
        cells, (grid[0] // 16, grid[1] // 16), mode='bicubic', antialias=True
    )
    torch.testing.assert_close(target.pos_embed[:, 1:], expected.flatten(2).transpose(1, 2))
    assert torch.equal(target.pos_embed[:, 0], source.pos_embed[:, 0])  # the class token's
    back = small(img_size=size)
    back.load_state_dict(target.state_dict())
    assert torch.equal(back.pos_embed, target.pos_embed)


def test_init_cfg(real, weights_file):
    cfg = {'type': 'Pretrained', 'checkpoint': str(weights_file)}
    model = ViTCB('tiny', init_cfg=cfg)
    model.init_weights()
    assert torch.equal(model.blocks[5].mlp.fc1.weight, real['blocks.5.mlp.fc1.weight'])
    torch.nn.init.zeros_(model.cls_token)
    model.init_weights()  # only once, as in mmengine
    assert not model.cls_token.any()
    constant = ViTCB(SMALL, out_indices=(0,), pyramid=False,
                     init_cfg={'type': 'Constant', 'val': 0.25, 'layer': 'Linear'})  # fmt: skip
    constant.init_weights()
    assert (constant.blocks[0].attn.qkv.weight == 0.25).all()
    wrong = ViTCB(SMALL, out_indices=(0,), pyramid=False, init_cfg={**cfg, 'checkpont': 'x'})
    with pytest.raises(UserError, match='not checkpont'):
        wrong.init_weights()


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'arch': 'smal'}, 'Did you mean "small'),
        ({'arch': 'vit_small_patch16_225'}, 'Did you mean "vit_small_patch16_224'),
        ({'arch': 'resnet50'}, 'not a plain Vision Transformer'),
        ({'arch': 'swin_tiny_patch4_window7_224'}, 'is a SwinTransformer'),
        ({'arch': {'embed_dims': 192}}, "'embed_dims'"),
        ({'arch': {**SMALL, 'num_classes': 3}}, 'leave out num_classes'),
        ({'broadcast': 'CB'}, 'broadcast='),
        ({'broadcast': 'cb', 'position': 'middle'}, 'Did you mean "mid"'),
        ({'broadcast': 'cb', 'layers': [4]}, 'the 4 layers 0 to 3'),
        ({'out_indices': (0, 1, 2, 4)}, 'out_indices'),
        ({'out_indices': ()}, 'out_indices is empty'),
        ({'out_indices': (1, 3)}, 'pyramid has 4 scales'),
        ({'pyramid': (4, 3, 2, 1)}, 'the scale 3'),
        ({'frozen_stages': 5}, 'frozen_stages=5'),
        (
            {
                'arch': {**SMALL, 'class_token': False, 'global_pool': 'avg'},
                'broadcast': 'cb_gate',
            },
            'needs a class token',
        ),
        ({'arch': 'vit_small_patch16_18x2_224', 'broadcast': 'cb'}, 'has no mlp'),
    ],
)
def test_wrong_options_say_what_is_wrong(options, message):
    with pytest.raises(UserError, match=message):
        small(**options)
