from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from original_arrays import npz
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cb_mm.checkpoints.backbone_weights import WeightsReport, load_weights, summary
from cb_mm.checkpoints.layouts import layout_of
from cb_mm.errors import UserError
from cb_mm.models import ViTCB


def random_weights() -> dict[str, Tensor]:
    """State dict of timm's ViT-Ti with classifier, every tensor away from its initial value."""
    generator = torch.Generator().manual_seed(0)
    model = timm.create_model('vit_tiny_patch16_224')
    return {
        key: torch.randn(value.shape, generator=generator) * 0.05
        for key, value in model.state_dict().items()
    }


@pytest.fixture(scope='session')
def real() -> dict[str, Tensor]:
    """ImageNet weights where they are at hand; the layouts are the same for any numbers."""
    file = Path(__file__).resolve().parents[3] / 'shared/weights'
    file = file / 'vit_tiny_patch16_224_in1k.safetensors'
    return load_file(file) if file.is_file() else random_weights()


@pytest.fixture(scope='session')
def trunk(real) -> dict[str, Tensor]:
    return {key: value for key, value in real.items() if not key.startswith('head.')}


def renamed(state_dict: dict[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    out = {}
    for key, value in state_dict.items():
        for old, new in rules:
            key = re.sub(old, new, key)
        out[key] = value
    return out


def prefixed(state_dict: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {prefix + key: value for key, value in state_dict.items()}


def mmseg(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    return renamed(
        state_dict,
        (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
        (r'^norm\.', 'ln1.'),
        (r'^blocks\.(\d+)\.norm([12])\.', r'layers.\1.ln\2.'),
        (r'^blocks\.(\d+)\.attn\.qkv\.', r'layers.\1.attn.attn.in_proj_'),
        (r'^blocks\.(\d+)\.attn\.proj\.', r'layers.\1.attn.attn.out_proj.'),
        (r'^blocks\.(\d+)\.mlp\.fc1\.', r'layers.\1.ffn.layers.0.0.'),
        (r'^blocks\.(\d+)\.mlp\.fc2\.', r'layers.\1.ffn.layers.1.'),
    )


def mmpretrain(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    return renamed(
        state_dict,
        (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
        (r'^norm\.', 'ln1.'),
        (r'^blocks\.(\d+)\.norm([12])\.', r'layers.\1.ln\2.'),
        (r'^blocks\.(\d+)\.mlp\.fc1\.', r'layers.\1.ffn.layers.0.0.'),
        (r'^blocks\.(\d+)\.mlp\.fc2\.', r'layers.\1.ffn.layers.1.'),
        (r'^blocks\.(\d+)\.ls1\.gamma$', r'layers.\1.attn.gamma1.weight'),
        (r'^blocks\.(\d+)\.ls2\.gamma$', r'layers.\1.ffn.gamma2.weight'),
        (r'^blocks\.', 'layers.'),
    )


def save(content, path: Path) -> Path:
    if path.suffix == '.npz':
        np.savez(path, **content)
    elif path.suffix == '.safetensors':
        save_file({k: v.contiguous() for k, v in content.items()}, path)
    else:
        torch.save(content, path)
    return path


def load(content, path: Path, **options) -> tuple[ViTCB, WeightsReport]:
    model = ViTCB('tiny', **{'pyramid': False, **options})
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)  # whatever is not loaded is seen
    return model, load_weights(model, save(content, path))


def assert_same(model: ViTCB, trunk: dict[str, Tensor], but: tuple[str, ...] = ()) -> None:
    state_dict = model.state_dict()
    for key, value in trunk.items():
        if key not in but:
            torch.testing.assert_close(state_dict[key], value, rtol=0, atol=0, msg=key)


def decoder() -> dict[str, Tensor]:
    names = (
        'mask_token',
        'decoder_pos_embed',
        'decoder_embed.weight',
        'decoder_blocks.0.norm1.bias',
    )
    return {name: torch.zeros(3) for name in names}


LAYOUTS = {
    'plain.pth': (lambda w: w, 'timm'),
    'plain.safetensors': (lambda w: w, 'timm'),
    'model.pt': (lambda w: {'model': w}, 'timm'),
    'state_dict.pth': (lambda w: {'state_dict': w, 'epoch': 3}, 'timm'),
    'ddp.pth': (lambda w: {'state_dict': prefixed(w, 'module.')}, 'timm'),
    'compiled.pth': (lambda w: prefixed(w, '_orig_mod.'), 'timm'),
    'ema.pth': (
        lambda w: {'model': {k: v + 1 for k, v in w.items()}, 'model_ema': w, 'epoch': 1},
        'timm',
    ),
    'mae.pth': (
        lambda w: {'model': {**{k: v for k, v in w.items() if 'head' not in k}, **decoder()}},
        'MAE',
    ),
    'dino_plain.pth': (lambda w: {k: v for k, v in w.items() if 'head' not in k}, 'timm'),
    'dino_full.pth': (
        lambda w: {
            'student': prefixed({k: v + 1 for k, v in w.items()}, 'module.backbone.'),
            'teacher': {
                **prefixed({k: v for k, v in w.items() if 'head' not in k}, 'backbone.'),
                'head.mlp.0.weight': torch.zeros(3, 3),
            },
            'optimizer': {'state': {0: {'exp_avg': torch.zeros(3)}}, 'param_groups': []},
            'epoch': 100,
        },
        'timm',
    ),
    'mmseg.pth': (lambda w: {'state_dict': mmseg(w), 'meta': {}}, 'mmseg'),
    'mmpretrain.pth': (
        lambda w: {'state_dict': {**prefixed(mmpretrain(w), 'backbone.')}, 'meta': {}},
        'mmpretrain',
    ),
    'original.npz': (npz, 'npz'),
    'optimizer.npz': (lambda w: npz(w, 'opt/target/'), 'npz'),
    'segmentor.pth': (
        lambda w: {
            'state_dict': {
                **prefixed(w, 'backbone.'),
                'decode_head.conv_seg.weight': torch.zeros(11, 3, 1, 1),
            }
        },
        'timm',
    ),
    'segmentor_ema.pth': (
        lambda w: {
            'state_dict': prefixed(w, 'backbone.'),
            'ema_state_dict': {
                'steps': torch.tensor(3),
                **prefixed({k: v + 1 for k, v in w.items()}, 'module.backbone.'),
            },
        },
        'timm',
    ),
    'detector.pth': (
        lambda w: {
            'state_dict': {
                **prefixed(mmseg(w), 'backbone.'),
                'neck.lateral_convs.0.conv.weight': torch.zeros(3, 3, 1, 1),
                'rpn_head.rpn_cls.weight': torch.zeros(3),
            }
        },
        'mmseg',
    ),
    'teacher_student.pth': (
        lambda w: {
            **prefixed({k: v + 1 for k, v in w.items()}, 'student.backbone.'),
            **prefixed(w, 'teacher.backbone.'),
        },
        'timm',
    ),
}


@pytest.mark.parametrize('name', LAYOUTS)
def test_layout(real, trunk, tmp_path, name):
    make, layout = LAYOUTS[name]
    model, report = load(make(real), tmp_path / name)
    assert_same(model, trunk)
    assert report.layout == layout
    assert (report.loaded, report.total) == (len(trunk), len(trunk))
    assert not report.missing
    assert not report.unexpected
    assert '\n' not in str(report)
    assert f'loaded {len(trunk)}/{len(trunk)}' in str(report)


def test_report_names_what_is_left_out(real, tmp_path):
    content = {'model': {**real, 'blocks.0.attn.relative': torch.zeros(2)}}
    model, report = load(
        content, tmp_path / 'a.pth', broadcast='cb_s', layers='upper', pyramid=True
    )
    assert set(report.expected_unexpected) == {'head.weight', 'head.bias'}
    assert report.unexpected == ('blocks.0.attn.relative',)
    scales = [key for key in report.expected_missing if 'broadcast' in key]
    assert len(scales) == 6
    assert all(key.startswith(('pyramid.', 'blocks.')) for key in report.expected_missing)
    assert (model.blocks[11].mlp.broadcast.scale == 7).all()
    line = str(report)
    assert 'blocks.*.mlp.broadcast.scale ×6' in line
    assert 'NOT EXPECTED, no place in the model: blocks.0.attn.relative' in line


def test_missing_tensors_are_listed(real, tmp_path):
    content = {k: v for k, v in real.items() if k != 'blocks.3.norm1.weight'}
    _, report = load(content, tmp_path / 'a.pth')
    assert report.missing == ('blocks.3.norm1.weight',)
    # The final norm does not run, so it may be absent; it may not where it runs.
    content = {k: v for k, v in real.items() if not k.startswith('norm.')}
    assert not load(content, tmp_path / 'b.pth')[1].missing
    assert load(content, tmp_path / 'b.pth', norm_out=True)[1].missing


def test_parts_of_a_segmentor_are_counted(real, tmp_path):
    content = {**prefixed(real, 'backbone.'), 'decode_head.a': torch.zeros(1), 'b': torch.zeros(1)}
    _, report = load({'state_dict': content}, tmp_path / 'a.pth')
    assert report.outside == 2
    assert report.where == 'state_dict backbone.'


def test_own_checkpoint_brings_scales_and_pyramid(tmp_path):
    source = ViTCB('tiny', broadcast='cb_s', layers='upper', scale_init=0.5)
    content = {'state_dict': prefixed(source.state_dict(), 'backbone.')}
    model, report = load(
        content, tmp_path / 'a.pth', broadcast='cb_s', layers='upper', pyramid=True
    )
    assert report.loaded == report.total
    assert_same(model, source.state_dict())


def test_a_whole_segmentor_takes_its_backbone(real, trunk, tmp_path):
    model = nn.Module()
    model.backbone = ViTCB('tiny', pyramid=False)
    load_weights(model, save(real, tmp_path / 'a.pth'))
    assert_same(model.backbone, trunk)


def test_prefix_can_be_told(real, trunk, tmp_path):
    content = {**prefixed({k: v + 1 for k, v in real.items()}, 'one.'), **prefixed(real, 'two.')}
    model = ViTCB('tiny', pyramid=False)
    load_weights(model, save(content, tmp_path / 'a.pth'), prefix='two.')
    assert_same(model, trunk)


def test_mmseg_features_agree(real, trunk, tmp_path):
    """mmseg's own ViT has these keys, and gives the same features with them."""
    from mmseg.models.backbones import VisionTransformer

    theirs = VisionTransformer(
        img_size=224, embed_dims=192, num_heads=3, out_indices=(3, 5, 7, 11), final_norm=True,
        patch_bias=True, norm_cfg={'type': 'LN', 'eps': 1e-6},
    )  # fmt: skip
    theirs.eval()
    theirs.load_state_dict(mmseg(trunk))
    ours, report = load({'state_dict': theirs.state_dict()}, tmp_path / 'a.pth')
    assert report.layout == 'mmseg'
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for a, b in zip(ours.eval()(x)[:3], theirs(x)[:3], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_mmseg_without_bias_of_the_patches(real, trunk, tmp_path):
    """mmseg's default has no such bias: the features agree only if ours is zero."""
    from mmseg.models.backbones import VisionTransformer

    theirs = VisionTransformer(
        img_size=224, embed_dims=192, num_heads=3, out_indices=(3, 5),
        norm_cfg={'type': 'LN', 'eps': 1e-6},
    )  # fmt: skip
    theirs.eval()
    bare = {k: v for k, v in mmseg(trunk).items() if k not in ('ln1.weight', 'ln1.bias')}
    if 'patch_embed.projection.bias' not in theirs.state_dict():
        bare.pop('patch_embed.projection.bias')
    theirs.load_state_dict(bare)
    options = {'out_indices': (3, 5)}
    ours, report = load({'state_dict': theirs.state_dict()}, tmp_path / 'a.pth', **options)
    assert not report.missing
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for a, b in zip(ours.eval()(x), theirs(x), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('name', ['vit_small_patch14_dinov2', 'vit_small_patch14_reg4_dinov2'])
def test_dinov2(tmp_path, name):
    """Meta's files: mask_token, register_tokens, a position for the class token alone."""
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=0, dynamic_img_size=True).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    content = dict(theirs.state_dict())
    if 'reg_token' in content:
        content['register_tokens'] = content.pop('reg_token')
        position = torch.randn(1, 1, 384)
        content['pos_embed'] = torch.cat([position, content['pos_embed']], dim=1)
        content['cls_token'] = content['cls_token'] - position
    content['mask_token'] = torch.zeros(1, 384)
    # The training script keeps the blocks in chunks.
    chunked = renamed(content, (r'^blocks\.(\d+)\.', r'blocks.0.\1.'))
    for number, raw in enumerate((content, {'teacher': prefixed(chunked, 'backbone.')})):
        ours = ViTCB(name, pyramid=False)
        report = load_weights(ours, save(raw, tmp_path / f'{number}.pth'))
        assert report.layout == 'DINOv2'
        assert report.loaded == report.total
        x = torch.randn(1, 3, 56, 70)
        with torch.no_grad():
            expected = theirs.forward_intermediates(x, indices=[11], intermediates_only=True)[0]
            torch.testing.assert_close(ours.eval()(x)[3], expected, rtol=1e-4, atol=1e-4)


def test_deit3_and_mmpretrain_layer_scale(tmp_path):
    arch = {'embed_dim': 24, 'depth': 2, 'num_heads': 2, 'init_values': 1.0, 'img_size': 32}
    options = {'out_indices': (0, 1), 'pyramid': False}
    source = ViTCB(arch, **options)
    for parameter in source.parameters():
        nn.init.normal_(parameter)
    gamma = renamed(source.state_dict(), (r'\.ls([12])\.gamma$', r'.gamma_\1'))
    for number, content in enumerate((gamma, mmpretrain(source.state_dict()))):
        target = ViTCB(arch, **options)
        load_weights(target, save(content, tmp_path / f'{number}.pth'))
        assert_same(target, source.state_dict())


@pytest.mark.parametrize(
    ('img_size', 'note'), [(512, '14x14 -> 32x32'), (96, '14x14 -> 6x6'), ((320, 480), '-> 20x30')]
)
@pytest.mark.parametrize('suffix', ['.pth', '.npz'])
def test_position_embedding_is_resized(real, trunk, tmp_path, img_size, note, suffix):
    content = npz(real) if suffix == '.npz' else real
    model, report = load(content, tmp_path / f'a{suffix}', img_size=img_size)
    assert note in str(report)
    assert_same(model, trunk, but=('pos_embed',))
    grid = model.patch_embed.grid_size
    expected = timm.layers.resample_abs_pos_embed(trunk['pos_embed'], list(grid))
    torch.testing.assert_close(model.pos_embed.data, expected)


def test_position_embedding_with_and_without_class_token(real, trunk, tmp_path):
    # A file without a position for the class token is one where it is zero.
    content = {**real, 'pos_embed': real['pos_embed'][:, 1:]}
    model, _ = load(content, tmp_path / 'a.pth')
    assert not model.pos_embed[:, :1].any()
    assert torch.equal(model.pos_embed[:, 1:], trunk['pos_embed'][:, 1:])
    # A model without class token takes the rest.
    arch = {'embed_dim': 192, 'depth': 12, 'num_heads': 3, 'class_token': False,
            'global_pool': 'avg', 'fc_norm': False}  # fmt: skip
    model = ViTCB(arch, pyramid=False)
    report = load_weights(model, save(real, tmp_path / 'b.pth'))
    assert torch.equal(model.pos_embed, trunk['pos_embed'][:, 1:])
    assert report.unexpected == ('cls_token',)
    # A model without a position for it gets the sum.
    model = ViTCB({'embed_dim': 192, 'depth': 12, 'num_heads': 3, 'no_embed_class': True})
    load_weights(model, tmp_path / 'b.pth')
    torch.testing.assert_close(model.cls_token, trunk['cls_token'] + trunk['pos_embed'][:, :1])


def test_distilled_files_and_models(real, trunk, tmp_path):
    token = torch.randn(1, 1, 192)
    positions = trunk['pos_embed']
    both = torch.cat([positions[:, :1], token, positions[:, 1:]], dim=1)
    content = {**real, 'dist_token': token, 'pos_embed': both, 'head_dist.weight': token[0]}
    model = ViTCB('deit_tiny_distilled_patch16_224', pyramid=False)
    report = load_weights(model, save({'model': content}, tmp_path / 'a.pth'))
    assert torch.equal(model.pos_embed, both)
    assert 'head_dist.weight' in report.expected_unexpected
    plain = ViTCB('tiny', pyramid=False)
    report = load_weights(plain, tmp_path / 'a.pth')
    assert torch.equal(plain.pos_embed, positions)
    assert report.unexpected == ('dist_token',)


def test_patches_of_another_size(real, tmp_path):
    model = ViTCB({'embed_dim': 192, 'depth': 12, 'num_heads': 3, 'patch_size': 8}, pyramid=False)
    report = load_weights(model, save(real, tmp_path / 'a.pth'))
    assert 'resized patches 16x16 -> 8x8' in str(report)
    assert 'resized pos_embed 14x14 -> 28x28' in str(report)


# --- what must be refused -----------------------------------------------------------------------


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (
            lambda w: {'layer1.0.conv1.weight': torch.zeros(3), 'fc.weight': torch.zeros(3)},
            ['0 of its 150 tensors match', 'layer1.0.conv1.weight', 'cls_token'],
        ),
        (
            lambda w: {k: v for k, v in w.items() if re.match(r'blocks\.[0-4]\.', k)},
            ['60 of its 150', 'Only in the model: '],
        ),
        (
            lambda w: timm.create_model('vit_small_patch16_224').state_dict(),
            ['192', '384', 'Other shapes'],
        ),
        (lambda w: {**w, 'blocks.1.attn.proj.bias': torch.zeros(5)}, ['5 in the file', '192 in']),
        (lambda w: {'epoch': 3, 'meta': {}}, ['0 of its 150']),
    ],
)
def test_foreign_files_are_refused_with_examples(trunk, tmp_path, make, words):
    model = ViTCB('tiny', pyramid=False)
    before = snapshot(model)
    with pytest.raises(UserError) as error:
        load_weights(model, save(make(trunk), tmp_path / 'foreign.pth'))
    assert 'foreign.pth' in str(error.value)
    for word in words:
        assert word in str(error.value)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_values_that_are_not_finite(trunk, tmp_path, value):
    broken = {**trunk, 'blocks.4.mlp.fc1.bias': trunk['blocks.4.mlp.fc1.bias'].clone()}
    broken['blocks.4.mlp.fc1.bias'][7] = value
    model = ViTCB('tiny', pyramid=False)
    before = snapshot(model)
    with pytest.raises(UserError, match=r'blocks\.4\.mlp\.fc1\.bias'):
        load_weights(model, save(broken, tmp_path / 'a.pth'))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_files_that_are_not_there_or_broken(real, tmp_path):
    model = ViTCB('tiny', pyramid=False)
    cut = save(npz(real), tmp_path / 'cut.npz')
    cut.write_bytes(cut.read_bytes()[:5000])
    other = tmp_path / 'other.npz'
    np.savez(other, a=np.zeros(3))
    pickled = tmp_path / 'pickled.npz'
    np.savez(pickled, a=np.array([{}], dtype=object))
    for source, message in (
        (tmp_path / 'none.pth', 'does not exist'),
        (tmp_path / 'none.npz', 'does not exist'),
        (cut, 'cut off'),
        (other, 'not the .npz of a plain Vision Transformer'),
        (pickled, 'holds an array of object'),
        ('vit_tiny_patch16_225', 'Did you mean "vit_tiny_patch16_224'),
        ('no such thing', 'neither a file'),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            load_weights(model, source)


HUB = """
from cb_mm.errors import UserError
from cb_mm.models import ViTCB
from cb_mm.checkpoints.backbone_weights import load_weights

model = ViTCB('tiny', pyramid=False)
for source in ('vit_tiny_patch16_224', 'vit_small_patch16_224', 'http://127.0.0.1:9/a.pth'):
    try:
        print('>', load_weights(model, source).loaded, float(model.pos_embed.sum()))
    except UserError as error:
        print('>', error)
"""


def test_hub_names_and_addresses_without_network(real, trunk, tmp_path):
    """One model lies in the hub's cache, and nothing else can be had."""
    name = 'models--timm--vit_tiny_patch16_224.augreg_in21k_ft_in1k'
    cache = tmp_path / 'hub' / name
    for folder in ('refs', 'snapshots/abc'):
        (cache / folder).mkdir(parents=True)
    (cache / 'refs/main').write_text('abc')
    save(real, cache / 'snapshots/abc/model.safetensors')
    repo = str(Path(__file__).resolve().parents[2])
    env = {'HF_HUB_OFFLINE': '1', 'HF_HOME': str(tmp_path), 'TORCH_HOME': str(tmp_path)}
    done = subprocess.run(
        [sys.executable, '-c', HUB],
        env={**os.environ, **env, 'PYTHONPATH': repo},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cached, absent, address = (
        line[2:] for line in done.stdout.splitlines() if line.startswith('> ')
    )
    loaded, total = cached.split()
    assert int(loaded) == len(trunk)
    assert float(total) == pytest.approx(float(trunk['pos_embed'].sum()), rel=1e-4)
    assert "'vit_small_patch16_224' could not be fetched from the hub" in absent
    assert 'give the path of the file' in absent
    assert 'could not be downloaded' in address


def test_layout_names():
    assert layout_of(['blocks.0.norm1.weight']) == 'timm'
    assert layout_of(['backbone.layers.0.attn.attn.in_proj_weight']) == 'mmseg'
    assert layout_of(['backbone.layers.0.ffn.layers.0.0.weight']) == 'mmpretrain'


def test_summary_groups_numbers():
    keys = [f'blocks.{i}.mlp.fc1.bias' for i in range(12)] + ['norm.weight']
    assert summary(keys) == 'blocks.*.mlp.fc1.bias ×12, norm.weight'
    assert summary([f'{c}.weight' for c in 'abcdefgh'], 2) == 'a.weight, b.weight and 6 more'
