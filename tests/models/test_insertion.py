"""add_context_broadcast: CB in anyone's model, where it should be, and out of it again."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import timm
import torch
import torchvision
from mmdet.models.backbones import PyramidVisionTransformer
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmseg.models.backbones import VisionTransformer as MmsegTransformer
from torch import Tensor, nn

import cb_mm
from cb_mm import add_context_broadcast, remove_context_broadcast
from cb_mm.errors import UserError
from cb_mm.models import ViTCB

SMALL = dict(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3)


def seeded(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def small_vit() -> nn.Module:
    torch.manual_seed(0)
    return timm.models.VisionTransformer(**SMALL, num_classes=5).eval()


def hybrid(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The formula of the paper, over the dimensions of the tokens."""
    return 0.5 * x + 0.5 * x.mean(dims, keepdim=True)


class Host(nn.Module):
    """Gives its input in whatever shape it has, as the output of its ``mlp``."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)


def test_equals_the_backbone_of_this_package():
    torch.manual_seed(0)
    arch = dict(patch_size=8, embed_dim=24, depth=4, num_heads=3)
    ours = ViTCB(arch, 'cb', pyramid=False, img_size=32, out_indices=(3,)).eval()
    plain = timm.models.VisionTransformer(**SMALL, num_classes=0).eval()
    plain.load_state_dict(ours.state_dict())
    added = add_context_broadcast(plain)
    assert added.names == ('blocks.2.mlp', 'blocks.3.mlp')
    assert added.found == 4
    (expected,) = ours(seeded(2, 3, 32, 32))
    (found,) = plain.forward_intermediates(
        seeded(2, 3, 32, 32), indices=[3], intermediates_only=True
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ('shape', 'layer', 'dims'),
    [
        ((2, 7, 6), nn.Linear(6, 6), (1,)),
        ((2, 3, 5, 6), nn.Linear(6, 6), (1, 2)),  # (B, H, W, C)
        ((2, 6, 6, 6), nn.Linear(6, 6), (1, 2)),  # fits both ways: last
        ((2, 6, 4, 5), nn.Conv2d(6, 6, 1), (2, 3)),  # (B, C, H, W)
        ((2, 6, 6, 6), nn.Conv2d(6, 6, 1), (2, 3)),  # fits both ways: a convolution
        ((2, 6, 9), nn.Conv1d(6, 6, 1), (2,)),  # (B, C, N)
        ((2, 2, 3, 5, 6), nn.Linear(6, 6), (1, 2, 3)),  # video
    ],
)
def test_mean_is_over_the_tokens_in_every_layout(shape, layer, dims):
    model = Host(layer)
    x = seeded(*shape)
    before = model(x)
    with add_context_broadcast(model, layers='all'):
        after = model(x)
    assert after.shape == before.shape
    torch.testing.assert_close(after, hybrid(before, dims))
    torch.testing.assert_close(model(x), before)


def test_layout_by_hand():
    model = Host(nn.Linear(6, 6))
    x = seeded(2, 6, 6)
    before = model(x)
    with add_context_broadcast(model, layers='all', channels_first=True):
        torch.testing.assert_close(model(x), hybrid(before, (2,)))


@pytest.mark.parametrize('kind', ['cb', 'cb_gate', 'cb_hybrid'])
def test_state_dict_stays_and_removal_restores(kind):
    model = small_vit()
    x = seeded(2, 3, 32, 32)
    before, keys = model(x), list(model.state_dict())
    added = add_context_broadcast(model, kind)
    assert list(model.state_dict()) == keys
    assert not torch.allclose(model(x), before)
    model.load_state_dict(model.state_dict())
    added.remove()
    assert torch.equal(model(x), before)
    assert not any(hasattr(module, 'broadcast') for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_scales_have_clear_names_start_at_zero_and_train():
    model = small_vit()
    x = seeded(2, 3, 32, 32)
    before, keys = model(x), set(model.state_dict())
    add_context_broadcast(model, 'cb_s', 'all')
    new = set(model.state_dict()) - keys
    assert new == {f'blocks.{i}.mlp.broadcast.scale' for i in range(4)}
    assert torch.equal(model(x), before)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).square().mean().backward()
    optimizer.step()
    assert all(model.get_parameter(name).abs().sum() > 0 for name in new)
    assert remove_context_broadcast(model) == 4
    assert set(model.state_dict()) == keys


def test_copies_and_pickles_stay_whole():
    model = small_vit()
    add_context_broadcast(model, 'cb_s', 'upper', scale_init=0.5)
    x = seeded(1, 3, 32, 32)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
        assert remove_context_broadcast(twin) == 2
        assert not torch.allclose(twin(x), model(x))  # the model itself still broadcasts


def test_patterns_and_layers():
    model = small_vit()
    assert add_context_broadcast(model, pattern='blocks.*.attn', layers=[0, -1]).names == (
        'blocks.0.attn', 'blocks.3.attn',
    )  # fmt: skip
    pattern = re.compile(r'^blocks\.[12]\.mlp\.fc2$')
    added = add_context_broadcast(model, 'cb_s', 'all', pattern, where='input')
    assert added.names == ('blocks.1.mlp.fc2', 'blocks.2.mlp.fc2')
    assert model.blocks[1].mlp.fc2.broadcast.scale.shape == (96,)  # of what comes in
    model(seeded(1, 3, 32, 32))


def test_a_dropout_is_as_wide_as_the_layer_right_before_it():
    model = small_vit()
    for drop, width in (('drop1', 96), ('drop2', 24)):
        with add_context_broadcast(model, 'cb_s', 'all', f'blocks.*.mlp.{drop}'):
            assert getattr(model.blocks[1].mlp, drop).broadcast.scale.shape == (width,)
            model(seeded(1, 3, 32, 32))


def test_chosen_tokens_alone_give_and_receive():
    model = Host(nn.Linear(6, 6))
    x = seeded(2, 9, 6)
    before = model(x)
    with add_context_broadcast(model, layers='all', tokens=slice(4, None)):
        after = model(x)
    assert torch.equal(after[:, :4], before[:, :4])
    torch.testing.assert_close(after[:, 4:], hybrid(before[:, 4:], (1,)))


@pytest.mark.parametrize('tokens', [slice(9, None), slice(5, 3), slice(0, 8, 2)])
def test_tokens_that_are_none_in_a_row_are_refused(tokens):
    model = Host(nn.Linear(6, 6))
    with (
        add_context_broadcast(model, layers='all', tokens=tokens),
        pytest.raises(UserError, match='chooses none of the 9 tokens in a row'),
    ):
        model(seeded(2, 9, 6))


def test_skipped_tokens_receive_but_do_not_give():
    model = Host(nn.Linear(6, 6))
    x = seeded(2, 9, 6)
    before = model(x)
    with add_context_broadcast(model, layers='all', skip_tokens=1):
        expected = 0.5 * before + 0.5 * before[:, 1:].mean(1, keepdim=True)
        torch.testing.assert_close(model(x), expected)


OTHERS = {
    # model, size of the image, number of layers, name of the last place
    'torchvision ViT': (
        lambda: torchvision.models.VisionTransformer(32, 8, 2, 3, 24, 48),
        32, 2, 'encoder.layers.encoder_layer_1.mlp.4',
    ),
    'torchvision Swin': (
        lambda: torchvision.models.SwinTransformer([4, 4], 16, [1, 2], [2, 4], [4, 4]),
        32, 3, 'features.3.1.mlp.4',
    ),
    'mmseg ViT': (
        lambda: MmsegTransformer(
            img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3, out_indices=1
        ),
        32, 2, 'layers.1.ffn.layers.2',
    ),
    # One dropout serves both layers of its FFN: the place is the second convolution.
    'mmdet PVT': (
        lambda: PyramidVisionTransformer(
            embed_dims=8, num_stages=2, num_layers=[1, 2], num_heads=[1, 2], out_indices=(1,),
            patch_sizes=[4, 2], strides=[4, 2], paddings=[0, 0], sr_ratios=[2, 1],
            mlp_ratios=[2, 2],
        ),
        32, 3, 'layers.1.1.2.ffn.layers.3',
    ),
    'timm ConvNeXt': (
        lambda: timm.create_model(
            'convnext_tiny', depths=(1, 1, 1, 1), dims=(8, 8, 8, 16), num_classes=3
        ),
        64, 4, 'stages.3.blocks.0.mlp',
    ),
}  # fmt: skip


def first(output) -> Tensor:
    return output[0] if isinstance(output, (tuple, list)) else output


@pytest.mark.parametrize('name', OTHERS)
def test_models_of_other_libraries(name):
    build, side, depth, last = OTHERS[name]
    torch.manual_seed(0)
    model = build()
    model.eval()
    for parameter in model.parameters():  # far from zero layer scales
        nn.init.normal_(parameter, std=0.3)
    x = seeded(2, 3, side, side)
    before = first(model(x))
    seen = {}
    added = add_context_broadcast(model, 'cb_s', 'all', scale_init=0.7)
    assert added.found == depth
    assert added.names[-1] == last
    model.get_submodule(last).register_forward_hook(
        lambda module, args, output: seen.update(output=output)
    )
    model.get_submodule(last).broadcast.register_forward_hook(
        lambda module, args, output: seen.update(tokens=args[0])
    )
    assert not torch.allclose(first(model(x)), before, atol=1e-5)
    tokens = seen['tokens']
    assert tokens.shape[0] == 2
    assert tokens.shape[-1] == model.get_submodule(last).broadcast.scale.numel()
    added.remove()
    assert torch.equal(first(model(x)), before)


def test_pvt_small_of_the_paper():
    """The real PVT-S, as mmdet has it; 24.5 M with the classifier of PVT's paper."""
    model = PyramidVisionTransformer(num_layers=[3, 4, 6, 3])
    parameters = sum(p.numel() for p in model.parameters())
    classifier = 512 * 1000 + 1000
    assert (parameters + classifier) / 1e6 == pytest.approx(24.5, abs=0.05)
    added = add_context_broadcast(model)
    assert (len(added.names), added.found) == (8, 16)
    maps = model(seeded(1, 3, 64, 96))
    assert [tuple(m.shape[1:]) for m in maps] == [
        (64, 16, 24), (128, 8, 12), (320, 4, 6), (512, 2, 3),
    ]  # fmt: skip
    sum(m.square().mean() for m in maps).backward()
    assert model.layers[3][1][2].ffn.layers[0].weight.grad.abs().sum() > 0


PVT = dict(
    type='mmdet.PyramidVisionTransformer', embed_dims=8, num_layers=[1, 1, 2, 1],
    num_heads=[1, 1, 2, 2], sr_ratios=[2, 2, 1, 1], drop_path_rate=0.0,
)  # fmt: skip


@pytest.mark.parametrize('scope', ['mmseg', 'mmdet'])
def test_backbone_of_a_registry_in_a_config(scope):
    """A small PVT of mmdet, with CB, in both scopes; it trains a step and keeps its keys."""
    with DefaultScope.overwrite_default_scope(scope):
        torch.manual_seed(0)
        plain = MODELS.build(Config(PVT)._cfg_dict)
        torch.manual_seed(0)
        config = dict(type='WithCB', backbone=PVT, broadcast='cb_s', layers='all', scale_init=0.5)
        model = MODELS.build(Config(config)._cfg_dict)
    assert isinstance(model, PyramidVisionTransformer)
    new = set(model.state_dict()) - set(plain.state_dict())
    assert len(new) == 5
    assert all(key.endswith('.broadcast.scale') for key in new)
    before, after = plain(seeded(1, 3, 64, 64)), model(seeded(1, 3, 64, 64))
    assert [m.shape for m in before] == [m.shape for m in after]
    sum((m * seeded(*m.shape)).sum() for m in after).backward()
    for key in new:
        assert model.get_parameter(key).grad.abs().sum() > 0, key


def test_backbone_of_a_registry_by_regular_expression_and_with_weights(tmp_path):
    torch.manual_seed(1)
    source = MODELS.build(PVT)
    torch.save(source.state_dict(), tmp_path / 'pvt.pth')
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'pvt.pth'))
    model = MODELS.build(
        dict(type='WithCB', backbone=PVT, pattern=r're:^layers\.3.*ffn\.layers$', layers='all',
             init_cfg=init)
    )  # fmt: skip
    assert remove_context_broadcast(copy.deepcopy(model)) == 1
    with pytest.raises(UserError, match='has no type'):
        MODELS.build(dict(type='WithCB', backbone={}))
    assert model.init_cfg == init


def test_torch_encoder_whose_fast_path_knows_no_parts():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).eval()
    x = seeded(2, 5, 16)
    with torch.no_grad():
        before = model(x)
        with add_context_broadcast(model) as added:
            assert added.names == ('layers.2.dropout2', 'layers.3.dropout2')
            assert not torch.allclose(model(x), before)
        torch.testing.assert_close(model(x), before)


def test_is_part_of_the_package():
    assert 'add_context_broadcast' in cb_mm.__all__
    with pytest.raises(AttributeError, match='no attribute'):
        _ = cb_mm.add_context


class Pooled(Host):
    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x.mean(1))


def projections() -> nn.Module:
    return nn.ModuleDict({name: nn.Linear(2, 2) for name in 'qkv'})


def twice(model: nn.Module) -> None:
    add_context_broadcast(model)
    add_context_broadcast(model)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: add_context_broadcast(small_vit(), 'cbs'), 'Did you mean "cb_s"'),
        (lambda: add_context_broadcast(small_vit(), pattern='block.*'), 'matches no module'),
        (lambda: add_context_broadcast(small_vit(), layers=[4]), 'the 4 layers 0 to 3'),
        (lambda: add_context_broadcast(small_vit(), where='middle'), "where='middle'"),
        (lambda: add_context_broadcast(nn.Linear(2, 2)), 'no MLP of a known kind'),
        (lambda: add_context_broadcast(projections()), '; its last linear layers are k and v.'),
        (lambda: add_context_broadcast(nn.Conv2d(3, 3, 1)), 'output is to be broadcast.'),
        (lambda: add_context_broadcast(small_vit(), tokens='image'), 'no part with text_embed'),
        (lambda: add_context_broadcast(small_vit(), tokens='pictures'), "tokens='pictures'"),
        (lambda: twice(small_vit()), 'blocks.2.mlp already broadcasts'),
        (
            lambda: add_context_broadcast(small_vit(), 'cb_s', 'upper', pattern='blocks.*.norm2'),
            'blocks.2.norm2 is not known',
        ),
    ],
)
def test_wrong_options_say_what_is_wrong(call, message):
    with pytest.raises(UserError, match=re.escape(message)):
        call()


def test_outputs_without_tokens_say_so():
    model = Pooled(nn.Linear(6, 6))
    add_context_broadcast(model, layers='all')
    with pytest.raises(UserError, match=re.escape('mlp gives no tokens')):
        model(seeded(2, 9, 6))
    model = Host(nn.Linear(6, 6))
    add_context_broadcast(model, 'cb_gate', layers='all')
    with pytest.raises(UserError, match='needs a class token'):
        model(seeded(2, 3, 3, 6))
    model = Host(nn.Linear(6, 6))
    add_context_broadcast(model, layers='all', channels_first=True)
    with pytest.raises(UserError, match='Set channels_first=False'):
        model(seeded(2, 9, 6))
